"""The words users choose a drafter with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from outrider.checkpoints.base import Kind
from outrider.errors import OptionError

DrafterKind: TypeAlias = Literal[
    "none", "ngram", "suffix", "grammar", "prediction", "model", "eagle", "medusa", "early-exit"
]

Way: TypeAlias = Literal["tokens", "text"]
"""How a draft model with another tokenizer drafts: token by token among those that both have, or
text that the target's tokenizer cuts."""

_ARGUMENTS = {
    "prediction": "FILE",
    "model": "ID_OR_PATH",
    "eagle": "PATH",
    "medusa": "PATH",
    "early-exit": "LAYER",
}

# What a kind is made from where nothing is named: the prediction comes with the request, what was
# trained with outrider.
_OPTIONAL = frozenset({"prediction", "model", "eagle", "medusa"})
TRAINED: dict[str, Kind] = {"eagle": "eagle", "medusa": "medusa", "model": "draft"}
"""The kinds that may name something trained for its target, and what that is."""

_WAY = "?way="
_SHARED = "?encoder=shared"

_NOUNS = {"eagle": "head", "medusa": "head", "early-exit": "layer"}

SPECS = (
    "none, ngram, suffix, grammar, prediction, prediction:FILE, model, model:ID_OR_PATH, "
    "model:ID_OR_PATH?way=WAY, model:ID_OR_PATH?encoder=shared, eagle, eagle:PATH, medusa, "
    "medusa:PATH, early-exit:LAYER"
)


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """A kind of drafter, and what it is made from: a model, a head, a file, a number of layers."""

    kind: DrafterKind
    argument: str | None = None
    way: Way | None = None
    """Of a draft model: how it drafts, where the user has a say in it."""
    shares_encoder: bool = False
    """Of a draft model: whether it is to hear by its target's encoder, whatever its own one is."""

    def __str__(self) -> str:
        argument = "" if self.argument is None else f":{self.argument}"
        way = "" if self.way is None else f"{_WAY}{self.way}"
        return f"{self.kind}{argument}{way}{_SHARED if self.shares_encoder else ''}"


# A comma within a name or a path does not part specs: what comes after is no kind of drafter.
_COMMA = re.compile(rf",(?=(?:{'|'.join(get_args(DrafterKind))})(?:[:,]|$))")


def parse_specs(text: str) -> tuple[DrafterSpec, ...]:
    """Read one spec, or several with commas between: "suffix,model:ID_OR_PATH".

    Raises OptionError for a spec that `parse_spec` refuses, one that occurs twice, and "none" next
    to others.
    """
    specs = tuple(parse_spec(part) for part in _COMMA.split(text))
    for place, spec in enumerate(specs):
        if spec.kind == "none" and len(specs) > 1:
            raise OptionError(
                f"drafter {text!r} asks for none and for others; write one or the other"
            )
        if spec in specs[:place] or (spec.kind == "prediction" and _has(specs[:place], spec.kind)):
            raise OptionError(f"drafter {text!r} names {spec.kind} twice; name each drafter once")
    return specs


def _has(specs: tuple[DrafterSpec, ...], kind: DrafterKind) -> bool:
    return any(spec.kind == kind for spec in specs)


def parse_spec(text: str) -> DrafterSpec:
    """Read a spec such as "suffix" or "model:ID_OR_PATH"; raises OptionError."""
    kind, colon, argument = text.partition(":")
    wanted = _ARGUMENTS.get(kind)
    if kind not in get_args(DrafterKind) or (colon and wanted is None):
        raise OptionError(f"drafter {text!r} is unknown; known are {SPECS}")
    if not argument and (colon or (wanted is not None and kind not in _OPTIONAL)):
        raise OptionError(
            f"drafter {text!r} names no {_NOUNS.get(kind, kind)}; write {kind}:{wanted}"
        )
    if kind == "early-exit" and not (argument.isdecimal() and int(argument) > 0):
        raise OptionError(f"drafter {text!r} names no layer: {argument!r} is no number from 1")
    found = DrafterSpec(cast("DrafterKind", kind), argument or None)
    return _with_option(found) if kind == "model" and argument else found


def _with_option(spec: DrafterSpec) -> DrafterSpec:
    """Take the option off a draft model's argument, unless a file or folder has it in its name."""
    argument = spec.argument or ""
    name, mark, way = argument.rpartition("?")
    if not mark or Path(argument).expanduser().exists():
        return spec
    known = [*(f"way={one}" for one in get_args(Way)), _SHARED[1:]]
    if way not in known or not name:
        raise OptionError(
            f"drafter {str(spec)!r} ends in the unknown option ?{way}; known are "
            f"{' and '.join(f'{name}?{one}' for one in known)}"
        )
    if way == _SHARED[1:]:
        return DrafterSpec(spec.kind, name, shares_encoder=True)
    return DrafterSpec(spec.kind, name, cast("Way", way.removeprefix("way=")))
