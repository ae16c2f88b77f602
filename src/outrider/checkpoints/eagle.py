"""The format of the original EAGLE code: a Llama configuration of one layer, and its tensors.

SafeAILab/EAGLE, versions 1 and 2 (`cnets1.py`) and 3 (`cnets.py`), as vLLM and SGLang read it too.
Where a file says which layers an EAGLE-3 head reads, the key is one of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.checkpoints.base import Checkpoint
from outrider.checkpoints.files import WEIGHTS, read_weights, write_json, write_tensors
from outrider.checkpoints.llama import or_default, read_layers, write_layers, write_rope
from outrider.checkpoints.tensors import without_needless_maps
from outrider.errors import LoadError, OptionError
from outrider.heads.config import EagleConfig
from outrider.targets.base import NORMED

if TYPE_CHECKING:
    from outrider.checkpoints.base import Tensors

LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
NORM_FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
_MIDDLE = "midlayer."
_FIRST = "layers.0."
_FEATURES = 3
# Switches of a configuration that are on and mean nothing here; any other one that is on may
# change what the head computes.
_HARMLESS = frozenset(
    {"use_cache", "tie_word_embeddings", "return_dict", "bias", *NORM_FLAGS}
    | {"attention_bias", "mlp_bias", "qkv_bias", "has_no_defaults_at_init"}
)
# Settings of an `eagle_config` and what each is in an EAGLE-3 head as published.
_USUAL: dict[str, Any] = {
    "use_aux_hidden_state": True,
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
    "next_layer_regular": True,
    "parallel_draft_step": 1,
}


def read_eagle(folder: Path, values: Mapping[str, Any]) -> Checkpoint:
    """Read a folder in this format; raises LoadError, OptionError for its configuration."""
    for key, value in values.items():
        if value is True and key not in _HARMLESS:
            raise LoadError(f"cannot load {folder}: config.json sets {key}, which is unknown")
    tensors = _canonical(read_weights(folder))
    if not any(name.startswith(_FIRST) for name in tensors):
        raise LoadError(
            f"cannot load {folder}: it holds no trained head of a known kind "
            f"(a whole model drafts as model:{folder})"
        )
    config = EagleConfig(**_fields(folder, values, tensors))
    kept = without_needless_maps(tensors, config.vocab_size, config.draft_vocab_size)
    return Checkpoint(config=config, tensors=kept, format="eagle")


def _fields(folder: Path, values: Mapping[str, Any], tensors: Tensors) -> dict[str, Any]:
    """Return the fields of the head's configuration: some are told by the tensors alone."""
    fields = read_layers(folder, values)
    fields |= {
        "target_hidden_size": or_default(values, "target_hidden_size", fields["hidden_size"]),
        "draft_vocab_size": or_default(values, "draft_vocab_size", fields["vocab_size"]),
        "owns_embeddings": "embed_tokens.weight" in tensors,
        # The code has no biases whatever the configuration says; others who write this format do.
        "attention_bias": f"{_FIRST}self_attn.o_proj.bias" in tensors,
        "mlp_bias": f"{_FIRST}mlp.down_proj.bias" in tensors,
    } | {flag: or_default(values, flag, False) for flag in NORM_FLAGS}
    if any(".hidden_norm." in name for name in tensors) or "lm_head.weight" in tensors:
        layers = _read_layer_ids(folder, values)
        return fields | {"version": 3, "feature_layers": layers, "owns_head": True}
    has_bias = or_default(values, "bias", True)
    first = {"version": 1, "feature_layers": (NORMED,), "owns_head": False, "fc_bias": has_bias}
    return fields | first


def _canonical(tensors: Tensors) -> Tensors:
    renamed = {
        _FIRST + name.removeprefix(_MIDDLE) if name.startswith(_MIDDLE) else name: tensor
        for name, tensor in tensors.items()
    }
    # Frequencies of the rotation, which old versions of Transformers kept with the weights.
    return {name: one for name, one in renamed.items() if not name.endswith("rotary_emb.inv_freq")}


def _read_layer_ids(folder: Path, values: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the hidden states read, None where the file leaves that to the target's depth.

    At the top level an id is that of the layer a hidden state enters (vLLM); within `eagle_config`
    it is that of the layer it leaves (SGLang, SpecForge).
    """
    if values.get(LAYER_IDS) is not None:
        return as_layers(folder, values[LAYER_IDS])
    inner = values.get("eagle_config") or {}
    if not isinstance(inner, dict):
        raise LoadError(f"cannot load {folder}: eagle_config is {inner!r}, not a JSON object")
    for key, value in inner.items():
        if key != LAYER_IDS and value is not None and value != _USUAL.get(key):
            raise LoadError(
                f"cannot load {folder}: eagle_config has {key} {value!r}, which is not supported"
            )
    if inner.get(LAYER_IDS) is None:
        return None
    return tuple(layer + 1 for layer in as_layers(folder, inner[LAYER_IDS]))


def as_layers(folder: Path, ids: object) -> tuple[int, ...]:
    """Return a list of layer ids as a tuple; raises LoadError for anything else."""
    if not isinstance(ids, list) or not all(isinstance(one, int) for one in ids):
        raise LoadError(f"cannot load {folder}: {LAYER_IDS} is {ids!r}, not a list of layer ids")
    return tuple(ids)


def write_eagle(checkpoint: Checkpoint, folder: Path) -> None:
    """Write a head in this format; raises OptionError for what the format has no word for."""
    config = checkpoint.config
    if not isinstance(config, EagleConfig):
        raise OptionError(f"{checkpoint.title} heads cannot be written as eagle; use medusa")
    for reason in _inexpressible(config):
        raise OptionError(f"this head cannot be written as eagle: {reason}; use native")
    values: dict[str, Any] = {"architectures": ["LlamaForCausalLM"]}
    values |= write_layers(config) | write_rope(config)
    values["torch_dtype"] = str(checkpoint.tensors["fc.weight"].dtype).removeprefix("torch.")
    tensors = checkpoint.tensors
    if config.version == 1:
        values["bias"] = config.fc_bias
    else:
        values["draft_vocab_size"] = config.draft_vocab_size
        if config.feature_layers is not None:
            values[LAYER_IDS] = list(config.feature_layers)
        if config.target_hidden_size != config.hidden_size:
            values["target_hidden_size"] = config.target_hidden_size
        tensors = {
            _MIDDLE + name.removeprefix(_FIRST) if name.startswith(_FIRST) else name: tensor
            for name, tensor in tensors.items()
        }
    write_json(folder, values)
    write_tensors(folder / WEIGHTS, tensors)


def _inexpressible(config: EagleConfig) -> list[str]:
    """Return what the original code would ignore, and so compute something else."""
    checks = {flag: getattr(config, flag) for flag in NORM_FLAGS}
    reasons = [f"{flag} is true, which it does not know" for flag, is_on in checks.items() if is_on]
    if config.attention_bias or config.mlp_bias:
        reasons.append("its layers have biases")
    if config.version == 3 and config.num_layers != 1:
        reasons.append(f"it has {config.num_layers} layers, not one")
    if config.version == 3 and config.num_features != _FEATURES:
        reasons.append(f"it reads {config.num_features} feature layers, not {_FEATURES}")
    if config.version == 3 and not config.owns_head:
        reasons.append("it has no language-model head of its own")
    return reasons
