"""Models in the target's place, which change the answer: quantised, cut short, or another one.

They are what a user would take instead of speculation, or beneath it. What comes out is not what
the target says, so that they are measured beside it and never among those that keep its text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from outrider.bench.weights import split_suffix
from outrider.errors import OptionError
from outrider.targets.sources import Quantization

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from outrider.decoder import Decoder

_CUT = "cut:"
_INT4 = (
    "int4 is no alternative here: nothing that outrider runs on keeps weights in four bits on a "
    "processor; name a model in four bits, such as a .gguf file, to see what it says"
)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A model in the target's place."""

    text: str
    """What the user calls it, and what reports do."""
    spec: str
    """The model to load."""
    layers: int | None = None
    """How many of its first layers are kept, None for all."""


def parse_alternatives(target: str, names: Sequence[str]) -> tuple[Alternative, ...]:
    """Read "int8", "cut:N" (the target's first N layers) and names of other models.

    Raises OptionError for one that is named twice, or cannot be had.
    """
    found = []
    for place, name in enumerate(names):
        if name in names[:place]:
            raise OptionError(f"alternatives name {name} twice; name each once")
        found.append(_parse(target, name))
    return tuple(found)


def _parse(target: str, name: str) -> Alternative:
    if name == "int4":
        raise OptionError(_INT4)
    if name in get_args(Quantization):
        _, suffix = split_suffix(target)
        if suffix is not None:
            raise OptionError(f"target {target!r} is quantised already: leave out {name}")
        return Alternative(name, f"{target}@{name}")
    if not name.startswith(_CUT):
        return Alternative(name, name)
    count = name.removeprefix(_CUT)
    if not count.isdecimal() or not int(count):
        raise OptionError(f"alternative {name!r} is not cut:N, N the layers that are kept")
    return Alternative(name, target, int(count))


def load_alternative(
    alternative: Alternative, target: Decoder, *, max_batch: int, loading: Mapping[str, Any]
) -> Decoder:
    """Load an alternative as the target was loaded, by `loading`, options of `outrider.load`.

    Raises LoadError, UnsupportedModelError, and OptionError for too few layers and for token ids
    that are not the target's.
    """
    import outrider

    options = {"max_batch": max_batch, "profile": False, **loading}
    if alternative.layers is None:
        decoder = outrider.load(alternative.spec, **options)
    else:
        decoder = _load_cut(alternative, alternative.layers, options)
    _require_same_ids(alternative, target, decoder)
    return decoder


def _load_cut(alternative: Alternative, layers: int, options: Mapping[str, Any]) -> Decoder:
    import outrider
    from outrider.targets.loading import load_model

    used = ("dtype", "device", "offload_folder", "trust_remote_code")
    loaded = load_model(
        alternative.spec, **{name: options[name] for name in used if name in options}
    )
    cut(loaded.model, layers, alternative.text)
    rest = {name: value for name, value in options.items() if name not in used[:-1]}
    decoder = outrider.load(loaded.model, tokenizer=loaded.tokenizer, **rest)
    # Heads are looked for by the target's name, and are refused for the layers that are missing.
    decoder.name = alternative.spec
    decoder.loaded = replace(decoder.loaded, name=alternative.spec)
    return decoder


def cut(model: PreTrainedModel, layers: int, name: str) -> None:
    """Leave a model its first layers alone, in place; for models that outrider has loaded.

    Raises OptionError for a number of layers that leaves nothing, or nothing out.
    """
    from outrider.targets.features import decoder_layers

    found = decoder_layers(model)
    before = len(found)
    if not 0 < layers < before:
        raise OptionError(f"alternative {name!r}: the target has {before} layers; leave fewer")
    del found[layers:]
    config = model.config.get_text_config(decoder=True)
    for key, value in list(vars(config).items()):
        if isinstance(value, list) and len(value) == before:  # what each layer is, one by one
            setattr(config, key, value[:layers])
    config.num_hidden_layers = layers


def _require_same_ids(alternative: Alternative, target: Decoder, decoder: Decoder) -> None:
    """Raise OptionError unless ids stand for the same tokens: what is compared are ids."""
    ours, theirs = target.tokenizer, decoder.tokenizer
    if ours is None or theirs is None:
        same = target.engine.target.vocab_size == decoder.engine.target.vocab_size
    else:
        same = ours.get_vocab() == theirs.get_vocab()
    if not same:
        raise OptionError(
            f"alternative {alternative.text!r} has other token ids than the target: its answers "
            "cannot be held against the target's"
        )


def weight_bytes(model: PreTrainedModel) -> int:
    """Return the bytes of a model's weights; those that layers share count once."""
    tensors = {id(one): one for one in (*model.parameters(), *model.buffers())}
    return sum(one.numel() * one.element_size() for one in tensors.values())
