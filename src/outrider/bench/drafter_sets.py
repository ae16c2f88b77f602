"""What a benchmark compares: sets of drafters, written with commas between them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import get_args

from outrider.bench.base import PLAIN
from outrider.drafters.spec import DrafterKind, DrafterSpec, parse_spec
from outrider.errors import OptionError

# A comma or a plus within a path parts nothing: what comes after it is no kind of drafter.
_KIND = rf"(?=(?:{'|'.join(map(re.escape, get_args(DrafterKind)))})(?:[:,+]|$))"
_COMMA = re.compile(rf",{_KIND}")
_PLUS = re.compile(rf"\+{_KIND}")


@dataclass(frozen=True, slots=True)
class DrafterSet:
    """Drafters that decode together, each round the best of them; none of them is plain."""

    specs: tuple[DrafterSpec, ...]

    @property
    def text(self) -> str:
        """The set as it is written: "suffix+eagle"."""
        return "+".join(map(_written, self.specs)) or PLAIN


def parse_drafter_sets(text: str) -> tuple[DrafterSet, ...]:
    """Read "none,ngram,suffix+eagle"; plain decoding comes first, whether it is named or not.

    Raises OptionError for an unknown drafter, one that needs a prediction or a grammar, and
    repetitions.
    """
    found = [_parse(part) for part in _COMMA.split(text)]
    for place, one in enumerate(found):
        if one in found[:place]:
            raise OptionError(f"drafters {text!r} name {one.text} twice; name each once")
    return (DrafterSet(()), *(one for one in found if one.specs))


def _parse(text: str) -> DrafterSet:
    specs = tuple(parse_spec(part) for part in _PLUS.split(text))
    if specs == (DrafterSpec("none"),):
        return DrafterSet(())
    for place, spec in enumerate(specs):
        if spec.kind == "none":
            raise OptionError(f"drafters {text!r} join none with others; write one or the other")
        if spec.kind == "prediction":
            raise OptionError(
                "the prediction drafter copies the output that is expected of one request: a "
                "workload has none; leave it out"
            )
        if spec.kind == "grammar":
            raise OptionError(
                "the grammar drafter drafts what a request's grammar forces: a workload has none; "
                "leave it out"
            )
        if spec in specs[:place]:
            raise OptionError(f"drafters {text!r} join {spec.kind} twice; name each drafter once")
    return DrafterSet(specs)


def _written(spec: DrafterSpec) -> str:
    return str(spec)
