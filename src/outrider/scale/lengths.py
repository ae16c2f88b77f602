"""Draft lengths for a server without a cost model, worked out from what `outrider tune` measured.

A batch of B requests that draft k tokens each takes a pass over B (1 + k) rows and the drafts, and
brings each request 1 + S(1) + ... + S(k) tokens, where S(j) is the probability that the first j
are all accepted. The best k has the most tokens a second.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, TypeAlias

from outrider.engine.acceptance import Acceptance, AcceptancePool
from outrider.engine.costs import DraftCosts, PassCosts
from outrider.engine.gains import Gains
from outrider.scale.schedule import Schedule, Span, merged
from outrider.types import DraftTree

Method: TypeAlias = Literal["ngram", "draft_model", "eagle3", "suffix"]
"""How vLLM drafts: words of its own, but for `suffix`, which is outrider's class there."""

DEFAULTS: dict[Method, Span] = {
    "ngram": Span(1, 1, 5),
    "draft_model": Span(1, 1, 5),
    "eagle3": Span(1, 1, 3),
    "suffix": Span(1, 1, 15, 0.1),
}
"""Where nothing was measured: what vLLM's documentation shows for a start."""

NGRAM_AGREED = 2
"""Tokens that an n-gram must agree in before it is copied, at least."""

_MOST = 15
_CONTEXT = 512
"""Tokens of context that passes are judged at."""
_WORTH = 1.02
"""Drafting that gains less than this is left out: costs are not known any better."""
_LEAST_TRIED = 8.0
"""Drafted tokens that must have been compared: one or two drafts say little of what they bring."""
_ROWS = 4
"""The price of a row is that of the first so many."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What passes cost, and what a drafter's drafts cost and bring."""

    passes: PassCosts
    drafts: DraftCosts
    survival: Sequence[float]
    """The probabilities that the first 1, 2, ... tokens of a draft are all accepted."""

    def pass_seconds(self, requests: int, length: int) -> float:
        """Return the seconds of a pass in which each request has a draft of so many tokens."""
        rows = requests * (1 + length)
        return self.passes.seconds(rows, rows * _CONTEXT, requests)

    def speedup(self, requests: int, length: int) -> float:
        """Return tokens a second over plain decoding's, with drafts of so many tokens."""
        plain = self.pass_seconds(requests, 0)
        if not length:
            return 1.0
        tokens = 1 + sum(self.survival[:length])
        drafting = self.drafts.seconds(length, requests * tokens, plain, requests)
        return tokens * plain / (self.pass_seconds(requests, length) + drafting)

    def best(self, requests: int) -> int:
        """Return the length with the most tokens a second, 0 if none gains enough."""
        length = max(range(len(self.survival) + 1), key=lambda k: self.speedup(requests, k))
        return length if self.speedup(requests, length) >= _WORTH else 0

    def least_chance(self, requests: int) -> float:
        """Return the chance at which a row for each request pays for itself, 1 at most."""
        plain = self.pass_seconds(requests, 0)
        return min(1.0, (self.pass_seconds(requests, _ROWS) / plain - 1) / _ROWS)


def read_costs(
    passes: Mapping[str, Any], record: Mapping[str, Any] | None, method: Method
) -> Costs:
    """Return the costs that a profile holds of its passes and of one drafter.

    There is no survival where too few drafts were seen to go by. Raises KeyError, TypeError or
    ValueError for a record that is not one of a drafter.
    """
    known = PassCosts.from_dict(passes)
    if method == "suffix" or record is None:
        return Costs(known, _free(), ())
    if method == "ngram":
        return Costs(known, _free(), _copied(AcceptancePool.from_dict(record["acceptance"])))
    drafts, gains = DraftCosts.from_dict(record["cost"]), Gains.from_list(record["gains"])
    is_tried = _tried(AcceptancePool.from_dict(record["acceptance"])) >= _LEAST_TRIED
    return Costs(known, drafts, _drafted(gains) if is_tried else ())


def schedule(costs: Costs, method: Method, most_requests: int) -> Schedule:
    """Return what to draft for batches of up to so many requests."""
    return merged(
        [
            _copying(costs, first, last)
            if method == "suffix"
            else Span(first, last, costs.best(last))
            for first, last in _batches(most_requests)
        ]
    )


def single(costs: Costs, most_requests: int) -> int:
    """Return the one length that is best over all batches, each counting alike."""

    def worth(length: int) -> float:
        return sum(math.log(costs.speedup(last, length)) for _, last in _batches(most_requests))

    return max(range(len(costs.survival) + 1), key=worth)


def fixed(length: int) -> Schedule:
    """Return the schedule that drafts so many tokens whatever the load."""
    return (Span(1, 1, length),)


def _batches(most: int) -> Iterator[tuple[int, int]]:
    """Yield 1-1, 2-2, 3-4, 5-8, ...: a batch is judged as the largest of its kind."""
    first, last = 1, 1
    while first <= most:
        yield first, last
        first, last = last + 1, last * 2


def _copying(costs: Costs, first: int, last: int) -> Span:
    least = costs.least_chance(last)
    return Span(first, last, _MOST if least < 1 else 0, round(least, 3))


def _free() -> DraftCosts:
    """Return the costs of drafts that cost next to nothing."""
    parts = dict.fromkeys(("fixed", "step", "unread"), 0.0)
    zeros = {"requests": 1, **parts, "variance": [0.0, 0.0, 0.0], "pass": 1.0}
    return DraftCosts.from_dict({"batches": [zeros]})


def _tried(pool: AcceptancePool) -> float:
    """Return how many drafted tokens were compared, each counting as the chance it claimed."""
    return pool.level[1] + sum(expected for _, expected in pool.by_chance)


def _copied(pool: AcceptancePool) -> list[float]:
    """Return the survival of copies after an agreement of `NGRAM_AGREED` tokens.

    An agreement of m tokens goes on with m / (m + 1), corrected by how such claims fared.
    """
    rates = [m / (m + 1) for m in range(NGRAM_AGREED, NGRAM_AGREED + _MOST)]
    chances = list(accumulate(rates, operator.mul))
    return Acceptance(pool).tree_survival(DraftTree.chain([0] * _MOST, chances=chances))


def _drafted(gains: Gains) -> list[float]:
    """Return the survival of chains, of a drafter whose drafts branched when it was measured.

    Of the tokens of a level each is taken to be half as likely as the one before it.
    """
    found: list[float] = []
    above, reached = 1.0, 1.0
    for level in gains.first(_MOST):
        share = 2 - 0.5 ** (max(1.0, level.nodes) - 1)
        reached *= level.tokens / above / share if above else 0.0
        above = level.tokens
        found.append(reached)
    return found
