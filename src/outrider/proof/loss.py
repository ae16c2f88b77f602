"""What a lossy rule costs: how far its texts lie from the target's own, and the verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from outrider.proof.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Distance:
    """How far the law of sampled texts lies from the target's, with one way to draft.

    Distances are total variation, from 0 to 1. A floor is the farthest that so many draws from
    the target's own law came to lie from it, out of a thousand times.
    """

    name: str
    draws: int
    drafted: int
    accepted: int
    first_tokens: float
    first_floor: float
    texts: float
    texts_floor: float

    @property
    def is_measurable(self) -> bool:
        """Whether chance alone does not lead so far."""
        return self.first_tokens > self.first_floor or self.texts > self.texts_floor


@dataclass(frozen=True, slots=True)
class Departure:
    """How many greedy tokens are not plain decoding's at their place, with one way to draft."""

    name: str
    answers: int
    tokens: int
    """Of plain decoding, or of the answers where those are longer."""
    drafted: int
    accepted: int
    rounds: int
    other: int
    """Tokens under the lossy rule that are not plain decoding's."""
    other_matched: int
    """The same under `match`: what rounding makes of it."""
    rounds_matched: int

    @property
    def share(self) -> float:
        """The share of the tokens that are others under the lossy rule."""
        return self.other / self.tokens

    @property
    def floor(self) -> float:
        """The share that are others under `match`."""
        return self.other_matched / self.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(Evidence):
    """All that was measured of a lossy rule with a target and its drafters on a machine."""

    rule: str
    distances: tuple[Distance, ...]
    departures: tuple[Departure, ...]
    dropped: tuple[str, ...] = ()
    """Drafters that raised and were dropped, and why."""

    @property
    def is_proved(self) -> bool:
        """Never: a lossy rule promises nothing."""
        return False

    @property
    def verdict(self) -> str:
        """NOT LOSSLESS, with the farthest that was measured, in one line."""
        word = "NOT LOSSLESS" + (" (interrupted)" if self.was_interrupted else "")
        found = [f"{word}: {self.rule}"]
        lossy = [one for one in self.distances if one.drafted]
        if lossy:
            worst = max(lossy, key=lambda one: one.first_tokens - one.first_floor)
            found.append(
                f"total variation of first tokens {worst.first_tokens:.3f}, noise floor "
                f"{worst.first_floor:.3f} ({worst.name})"
            )
            worst = max(lossy, key=lambda one: one.texts - one.texts_floor)
            found.append(
                f"of texts {worst.texts:.3f}, noise floor {worst.texts_floor:.3f} ({worst.name})"
            )
        if self.departures:
            most = max(self.departures, key=lambda one: one.share)
            found.append(
                f"{most.share:.1%} of {most.tokens:,} greedy tokens differ, {most.floor:.1%} with "
                f"match ({most.name})"
            )
        return "; ".join(found)

    def found(self) -> dict[str, Any]:
        """Return the rule and every number, as plain values."""
        return {
            "lossy": self.rule,
            "sampled": [asdict(one) | {"measurable": one.is_measurable} for one in self.distances],
            "greedy": [
                asdict(one) | {"share": one.share, "floor": one.floor} for one in self.departures
            ],
            "dropped": list(self.dropped),
        }
