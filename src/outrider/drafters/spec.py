"""The words users choose a drafter with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

from outrider.errors import OptionError

DrafterKind: TypeAlias = Literal["none", "ngram", "suffix", "prediction", "model"]

SPECS = "none, ngram, suffix, prediction, prediction:FILE, model:ID_OR_PATH"


@dataclass(frozen=True, slots=True)
class DrafterSpec:
    """A kind of drafter, and what it is made from: a model, or a file with the expected output."""

    kind: DrafterKind
    argument: str | None = None


def parse_spec(text: str) -> DrafterSpec:
    """Read a spec such as "suffix" or "model:ID_OR_PATH"; raises OptionError."""
    kind, colon, argument = text.partition(":")
    takes_argument = kind in ("model", "prediction")
    if kind not in get_args(DrafterKind) or (colon and not takes_argument):
        raise OptionError(f"drafter {text!r} is unknown; known are {SPECS}")
    if not argument and (colon or kind == "model"):
        wanted = "model:ID_OR_PATH" if kind == "model" else "prediction:FILE"
        raise OptionError(f"drafter {text!r} names no {kind}; write {wanted}")
    return DrafterSpec(cast("DrafterKind", kind), argument or None)
