"""Rules that let pass more drafts than the target's own words allow: what they emit differs.

Each relaxes a lossless rule, and is that rule at the limit of its numbers. None is ever chosen by
itself: only `parse_lossy` makes one, from what a user wrote after the word lossy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from outrider.errors import OptionError
from outrider.trees.layout import children
from outrider.types import DraftTree, LossyRule, Verification
from outrider.verification.base import Randomness, SpreadRows
from outrider.verification.law import at, draft_law, residual

_FORMS = "lenience:L, typical:EPSILON,DELTA or fly:WINDOW,ENTROPY"

Kind = Literal["lenience", "typical", "fly"]
_Check = tuple[str, Callable[[float], bool], str]

# The numbers of each kind: name, range, and the range in words.
_KINDS: dict[Kind, tuple[_Check, ...]] = {
    "lenience": (("L", lambda x: 0 < x <= 1, "above 0 and at most 1, where nothing is let pass"),),
    "typical": (
        ("EPSILON", lambda x: 0 < x <= 1, "above 0 and at most 1"),
        ("DELTA", lambda x: 0 < x < math.inf, "a finite number above 0"),
    ),
    "fly": (
        ("WINDOW", lambda x: x >= 0 and x == int(x), "a whole number of at least 0"),
        ("ENTROPY", lambda x: 0 <= x <= 1, "from 0 to 1, where nothing is let pass"),
    ),
}


def parse_lossy(text: object) -> LossyRule:
    """Read a lossy rule as users write it; raises OptionError."""
    kind, _, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
    checks = next((checks for name, checks in _KINDS.items() if name == kind), None)
    parts = rest.split(",")
    if checks is None or len(parts) != len(checks):
        raise OptionError(f"lossy is {text!r}; it must be {_FORMS}")
    numbers = tuple(map(_number, parts))
    for (name, accepts, allowed), number in zip(checks, numbers, strict=True):
        if not (math.isfinite(number) and accepts(number)):
            raise OptionError(f"lossy is {text!r}; {name} must be {allowed}")
    return LossyRule(next(name for name in _KINDS if name == kind), numbers)


def verify_lossy(
    rule: LossyRule, rows: SpreadRows, tree: DraftTree, randomness: Randomness
) -> Verification:
    """Verify a tree with a lossy rule. Never lets pass what the target gives no chance at all."""
    match rule.kind:
        case "lenience" if rows.is_greedy:
            return _relaxed_match(rows, tree, _near_likeliest(rows, *rule.numbers))
        case "lenience":
            return _lenient_rejection(rows, tree, randomness, *rule.numbers)
        case "typical":
            return _relaxed_match(rows, tree, _typical(rows, *rule.numbers))
        case "fly":
            return _fly(rows, tree, int(rule.numbers[0]), rule.numbers[1])


# -- relaxed matching ------------------------------------------------------------------------------

Bound = Callable[[int], tuple[Tensor, float]]
"""Of a row: the distribution there, and how likely a token must be to pass without a match."""


def _relaxed_match(rows: SpreadRows, tree: DraftTree, bound: Bound) -> Verification:
    """Follow the target's own token where it was drafted, else the first draft above the bound."""
    below = children(tree)
    path: list[int] = []
    row = 0
    while True:
        token = rows.token(row)
        node = _carrying(tree, below[row], token)
        if node is None and below[row]:
            law, least = bound(row)
            node = next(
                (child for child in below[row] if at(law, tree.tokens[child]) > least), None
            )
        if node is None:
            return Verification(tuple(path), token)
        path.append(node)
        row = node + 1


def _typical(rows: SpreadRows, epsilon: float, delta: float) -> Bound:
    """Pass what is likelier than min(epsilon, delta exp(-H)) (Medusa, 2401.10774, section 2.3.1).

    H is the entropy at the row in nats.
    """

    def bound(row: int) -> tuple[Tensor, float]:
        law = rows.spread(row)
        return law, min(epsilon, delta * math.exp(-entropy(law)))

    return bound


def _near_likeliest(rows: SpreadRows, lenience: float) -> Bound:
    """Pass what is more than `lenience` times as likely as the likeliest.

    How lenience is meant for greedy decoding (2211.17192, appendix A.5), where there are no draws.
    """

    def bound(row: int) -> tuple[Tensor, float]:
        law = rows.spread(row)
        return law, lenience * float(law.max())

    return bound


def _fly(rows: SpreadRows, tree: DraftTree, window: int, threshold: float) -> Verification:
    """Pass a mismatch where the target is unsure, if `window` drafts behind it match (2511.22972).

    Unsure is an entropy above `threshold` times that of all tokens alike. A mismatch without so
    many drafts behind it stands: there is nothing to tell from that it was none.
    """
    below = children(tree)
    tokens: dict[int, int] = {}  # a row of the window may be come to again: it is drawn once

    def drawn(row: int) -> int:
        if row not in tokens:
            tokens[row] = rows.token(row)
        return tokens[row]

    def settles(node: int) -> bool:
        found: int | None = node
        for _ in range(window):
            assert found is not None
            row = found + 1
            # Nothing drafted there: the row need not be asked.
            found = _carrying(tree, below[row], drawn(row)) if below[row] else None
            if found is None:
                return False
        return True

    path: list[int] = []
    row = 0
    while True:
        node = _carrying(tree, below[row], drawn(row))
        if node is None and below[row]:
            law = rows.spread(row)
            if entropy(law) > threshold * math.log(len(law)):
                possible = (child for child in below[row] if at(law, tree.tokens[child]) > 0)
                node = next(filter(settles, possible), None)
        if node is None:
            return Verification(tuple(path), drawn(row))
        path.append(node)
        row = node + 1


# -- relaxed rejection -----------------------------------------------------------------------------


def _lenient_rejection(
    rows: SpreadRows, tree: DraftTree, randomness: Randomness, lenience: float
) -> Verification:
    """Accept with min(1, p / (L q)) instead of min(1, p / q) (2211.17192, appendix A.5).

    A draft without q was certain: q is 1 there. What is drawn after rejections is as it was.
    """
    below = children(tree)
    path: list[int] = []
    row = 0
    while True:
        p = rows.probs(row)
        for rank, child in enumerate(below[row]):
            token = tree.tokens[child]
            q = _certain(p, token) if tree.q is None else draft_law(tree, below[row][: rank + 1], p)
            if randomness.accept(child, min(1, at(p, token) / (lenience * at(q, token)))):
                path.append(child)
                row = child + 1
                break
            p, _ = residual(p, q)
        else:
            return Verification(tuple(path), randomness.draw(len(tree) + row, p))


def _certain(p: Tensor, token: int) -> Tensor:
    law = 0 * p
    law[token] = 1
    return law


# -- what they share -------------------------------------------------------------------------------


def entropy(law: Tensor) -> float:
    """Return the entropy of a distribution [V] in nats."""
    return float(torch.special.entr(law).sum())


def _carrying(tree: DraftTree, nodes: list[int], token: int) -> int | None:
    return next((node for node in nodes if tree.tokens[node] == token), None)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
