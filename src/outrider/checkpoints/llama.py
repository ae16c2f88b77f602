"""The decoder layers of a head as other formats describe them: in the words of a Llama model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.errors import LoadError

if TYPE_CHECKING:
    from outrider.heads.config import EagleConfig

_REQUIRED = ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size")
# What a Llama configuration means by leaving one of these out.
_DEFAULTS: dict[str, Any] = {
    "num_hidden_layers": 1,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 2048,
    "attention_bias": False,
    "mlp_bias": False,
}
_THETA = 10000.0


def read_layers(folder: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `EagleConfig` that a Llama configuration gives.

    Raises LoadError for one without the sizes; what is wrong with them is for EagleConfig to say.
    """
    given = _DEFAULTS | {name: value for name, value in values.items() if value is not None}
    for name in _REQUIRED:
        if name not in given:
            raise LoadError(f"cannot load {folder}: config.json lacks {name}")
    heads = given["num_attention_heads"]
    if not isinstance(heads, int) or not isinstance(given["hidden_size"], int) or heads < 1:
        raise LoadError(f"cannot load {folder}: config.json has num_attention_heads {heads!r}")
    fields = {name: given[name] for name in (*_REQUIRED, *_DEFAULTS) if name != "num_hidden_layers"}
    return fields | {
        "num_layers": given["num_hidden_layers"],
        "num_key_value_heads": given.get("num_key_value_heads", heads),
        "head_dim": given.get("head_dim", given["hidden_size"] // heads),
        "rope_parameters": _read_rope(folder, given),
    }


def or_default(values: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return a value, or the default where it is absent or null."""
    found = values.get(name)
    return default if found is None else found


def _read_rope(folder: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rotation's parameters in one table, wherever Transformers of any age put them."""
    rope = values.get("rope_parameters", values.get("rope_scaling", {}))
    if not isinstance(rope, dict):
        raise LoadError(f"cannot load {folder}: config.json has rope parameters {rope!r}")
    found = {"rope_theta": values.get("rope_theta", _THETA)} | rope
    old_name = found.pop("type", "default")
    found.setdefault("rope_type", old_name)
    if "partial_rotary_factor" in values:
        found.setdefault("partial_rotary_factor", values["partial_rotary_factor"])
    return found


def write_layers(config: EagleConfig) -> dict[str, Any]:
    """Return the decoder layers of a head as a Llama configuration, all but the rotation."""
    values = config.to_dict()
    kept = (*_REQUIRED, *_DEFAULTS, "num_key_value_heads", "head_dim")
    layers = {name: values[name] for name in kept if name != "num_hidden_layers"}
    return {"model_type": "llama", "num_hidden_layers": config.num_layers} | layers


def write_rope(config: EagleConfig) -> dict[str, Any]:
    """Return the rotation's parameters as Transformers before version 5 has them.

    The original EAGLE code asks for `type`, and for nothing else beside `factor`.
    """
    rope = dict(config.rope_parameters)
    theta, kind = rope.pop("rope_theta", _THETA), rope.pop("rope_type", "default")
    if kind == "default" and not rope:
        return {"rope_theta": theta, "rope_scaling": None}
    name = "type" if kind in ("linear", "dynamic") else "rope_type"
    return {"rope_theta": theta, "rope_scaling": {name: kind} | rope}
