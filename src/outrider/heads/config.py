"""What a trained head is made of: the shapes and switches its tensors alone do not tell."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Literal

from outrider.errors import OptionError
from outrider.targets.base import NORMED

_NORM_FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
_DEFAULT_FEATURES = 3
"""Layers an EAGLE-3 head reads where it does not say which: a low, a middle and a high one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleConfig:
    """An EAGLE head: one small decoder over token embeddings and the target's hidden states.

    Version 1 also stands for EAGLE-2, which has the same weights. Raises OptionError for a value
    of the wrong type or range, and for a combination no head can have.
    """

    version: Literal[1, 3]
    hidden_size: int
    target_hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    """Token ids of the target."""
    draft_vocab_size: int
    """Token ids the head can draft; `vocab_size` where it drafts them all."""
    max_position_embeddings: int
    feature_layers: tuple[int, ...] | None
    """Hidden states read, by the layer they enter; None: the default of a target of any depth."""
    owns_embeddings: bool
    owns_head: bool
    num_layers: int = 1
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    rope_parameters: Mapping[str, Any] = field(
        default_factory=lambda: {"rope_type": "default", "rope_theta": 10000.0}
    )
    attention_bias: bool = False
    mlp_bias: bool = False
    fc_bias: bool = False
    norm_before_residual: bool = False
    """The first layer's residual is the normed hidden state, not the hidden state itself."""
    norm_before_fc: bool = False
    """One norm over all features side by side, before they are mixed."""
    fc_norm: bool = False
    """One norm for each feature, before they are mixed."""
    norm_output: bool = False
    """The next step reads the hidden state after the final norm, not before it."""

    def __post_init__(self) -> None:
        _check_types(self)
        _check_positive(
            self,
            *("hidden_size", "target_hidden_size", "intermediate_size", "num_attention_heads"),
            *("num_key_value_heads", "head_dim", "vocab_size", "draft_vocab_size"),
            *("max_position_embeddings", "num_layers"),
        )
        object.__setattr__(self, "rope_parameters", dict(self.rope_parameters))
        for problem in self._problems():
            raise OptionError(f"an EAGLE-{self.version} head cannot be: {problem}")

    def _problems(self) -> list[str]:
        """Return what no head of this version can be."""
        heads, groups = self.num_attention_heads, self.num_key_value_heads
        checks = {
            f"its {groups} key-value heads do not divide its {heads} attention heads": (
                heads % groups != 0
            ),
            f"it drafts {self.draft_vocab_size} token ids of {self.vocab_size}": (
                self.draft_vocab_size > self.vocab_size
            ),
            f"its hidden size {self.hidden_size} is not the target's, {self.target_hidden_size}, "
            "and it has no embeddings of its own": (
                not self.owns_embeddings and self.hidden_size != self.target_hidden_size
            ),
        }
        found = [problem for problem, is_so in checks.items() if is_so]
        return found + (self._problems_1() if self.version == 1 else self._problems_3())

    def _problems_1(self) -> list[str]:
        checks = {
            "it has a language-model head of its own": self.owns_head,
            "its hidden size is not the target's": self.hidden_size != self.target_hidden_size,
            "it drafts some of the token ids only": self.draft_vocab_size != self.vocab_size,
            f"feature_layers is {self.feature_layers}, not {(NORMED,)}": (
                self.feature_layers != (NORMED,)
            ),
        } | {f"{name} is true": getattr(self, name) for name in _NORM_FLAGS}
        return [problem for problem, is_so in checks.items() if is_so]

    def _problems_3(self) -> list[str]:
        layers = self.feature_layers
        checks = {
            "fc_bias is true": self.fc_bias,
            "it reads no feature layers": layers == (),
            f"feature_layers is {layers}": layers is not None and any(n < 0 for n in layers),
            "norm_before_fc and fc_norm are both true": self.norm_before_fc and self.fc_norm,
            "it has no language-model head, and the target's does not fit": (
                not self.owns_head
                and (self.draft_vocab_size, self.hidden_size)
                != (self.vocab_size, self.target_hidden_size)
            ),
        }
        return [problem for problem, is_so in checks.items() if is_so]

    @property
    def num_features(self) -> int:
        """How many hidden states of the target are mixed into one."""
        return _DEFAULT_FEATURES if self.feature_layers is None else len(self.feature_layers)

    @property
    def is_reduced(self) -> bool:
        """Whether the head drafts some of the target's token ids only."""
        return self.draft_vocab_size != self.vocab_size

    def resolved(self, num_target_layers: int) -> EagleConfig:
        """Return the configuration with the feature layers named, for a target of that depth.

        The default is layers 2, L // 2 and L - 3, as EAGLE-3 was trained (Li et al., 2503.01840).
        """
        if self.feature_layers is not None:
            return self
        depth = num_target_layers
        return replace(self, feature_layers=(2, depth // 2, depth - 3))

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as plain values, for JSON."""
        return _to_dict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EagleConfig:
        """Read what `to_dict` gave; raises OptionError, also for a key that is not known."""
        return cls(**_known(cls, values))


@dataclass(frozen=True, slots=True, kw_only=True)
class MedusaConfig:
    """Medusa heads: head k guesses, from the target's last hidden state, the token k + 2 on.

    Each is `num_layers` residual blocks and an output layer, its own or the target's. Raises
    OptionError for a value of the wrong type or range.
    """

    num_heads: int
    num_layers: int
    hidden_size: int
    vocab_size: int
    owns_output: bool = True
    """Each head has an output layer [V, H]; otherwise all of them share the target's."""
    base_model: str | None = None
    """Name of the target the heads were trained for, where it is known."""

    def __post_init__(self) -> None:
        _check_types(self)
        _check_positive(self, "num_heads", "num_layers", "hidden_size", "vocab_size")

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as plain values, for JSON."""
        return _to_dict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MedusaConfig:
        """Read what `to_dict` gave; raises OptionError, also for a key that is not known."""
        return cls(**_known(cls, values))


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftConfig:
    """A draft model that reads with its target's embeddings and speaks with its output layer.

    Its own are the layers between the two, and the final norm. Raises OptionError for a value of
    the wrong type or range.
    """

    architecture: Mapping[str, Any]
    """The configuration of the model as a whole, in the words of Transformers."""
    num_layers: int
    hidden_size: int
    vocab_size: int
    """Token ids of the target."""
    draft_vocab_size: int
    """Token ids the model can draft; `vocab_size` where it drafts them all."""

    def __post_init__(self) -> None:
        _check_types(self)
        _check_positive(self, "num_layers", "hidden_size", "vocab_size", "draft_vocab_size")
        if self.draft_vocab_size > self.vocab_size:
            raise OptionError(
                f"a draft model cannot draft {self.draft_vocab_size} token ids of {self.vocab_size}"
            )
        # As a file gives it back: what was written and what is read are the same.
        object.__setattr__(self, "architecture", json.loads(json.dumps(dict(self.architecture))))

    @property
    def is_reduced(self) -> bool:
        """Whether the model drafts some of the target's token ids only."""
        return self.draft_vocab_size != self.vocab_size

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as plain values, for JSON."""
        return _to_dict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DraftConfig:
        """Read what `to_dict` gave; raises OptionError, also for a key that is not known."""
        return cls(**_known(cls, values))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or _is_whole(value)


# A field's annotation, as it is written above: whether a value is one, and how to call that.
_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": (_is_whole, "a whole number"),
    "float": (_is_number, "a number"),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "str": (lambda value: isinstance(value, str), "text"),
    "str | None": (lambda value: value is None or isinstance(value, str), "text or nothing"),
    "Literal[1, 3]": (lambda value: _is_whole(value) and value in (1, 3), "1 or 3"),
    "Mapping[str, Any]": (lambda value: isinstance(value, Mapping), "a table of names and values"),
    "tuple[int, ...] | None": (
        lambda value: value is None or (isinstance(value, tuple) and all(map(_is_whole, value))),
        "a list of layer numbers",
    ),
}


def _check_types(config: Any) -> None:
    for one in fields(config):
        value = getattr(config, one.name)
        is_one, wanted = _TYPES[str(one.type)]
        if not is_one(value):
            raise OptionError(f"{one.name} is {value!r}; it must be {wanted}")


def _check_positive(config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value < 1:
            raise OptionError(f"{name} is {value}; it must be at least 1")


def _to_dict(config: Any) -> dict[str, Any]:
    values = {one.name: getattr(config, one.name) for one in fields(config)}
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain


def _known(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    names = [one.name for one in fields(cls)]
    for name in values:
        if name not in names:
            raise OptionError(f"{name} is unknown; known are {', '.join(names)}")
    layers = values.get("feature_layers")
    given = dict(values)
    if isinstance(layers, list):
        given["feature_layers"] = tuple(layers)
    for one in fields(cls):
        if one.name not in given and one.default is MISSING and one.default_factory is MISSING:
            raise OptionError(f"{one.name} is missing")
    return given
