"""How many drafts the rules accept in expectation: published values, bounds and orderings."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import cast

import pytest

from outrider.proof.enumeration import Row, double_array, enumerate_round
from outrider.proof.enumeration import VerificationRule as Rule
from outrider.proof.toys import (
    A,
    B,
    C,
    D,
    F,
    G,
    chain_parents,
    constant,
    fixed,
    random_model,
    row,
    sampled,
)
from outrider.types import DraftTree
from outrider.verification import verify

match: Rule = partial(verify, "match")
rejection: Rule = partial(verify, "rejection")
block: Rule = partial(verify, "block")
traversal: Rule = partial(verify, "traversal")


def expected_accepted(rule: Rule, laws: tuple[Row, Row], parents: tuple[int, ...]) -> Fraction:
    p, q = laws
    return enumerate_round(rule, constant(p), sampled(constant(q), parents), length=1).accepted


@pytest.mark.parametrize(
    ("laws", "rule", "accepted"),
    [
        (A, rejection, ("2/3", "10/9", "38/27")),
        (A, block, ("2/3", "11/9", "5/3")),
        (B, rejection, (".7", "1.19", "1.533")),
        (B, block, (".7", "1.25", "1.695")),
        (C, rejection, (".7", "1.19", "1.533")),
        (C, block, (".7", "1.25", "1.711")),
        (D, rejection, ("1", "2", "3")),
        (D, block, ("1", "2", "3")),
        (A, traversal, ("2/3", "11/9", "5/3")),
        (B, traversal, (".7", "1.25", "1.695")),
        (C, traversal, (".7", "1.25", "1.711")),
        (D, traversal, ("1", "2", "3")),
        (B, match, (".29", ".3741", ".398489")),
    ],
)
def test_chain_acceptance_is_the_published_one(
    laws: tuple[Row, Row], rule: Rule, accepted: tuple[str, ...]
) -> None:
    """DIST-3, DIST-5: independent draws would match with .29 only, so q must arrive."""
    for length, value in enumerate(accepted, start=1):
        assert expected_accepted(rule, laws, chain_parents(length)) == Fraction(value)


@pytest.mark.parametrize("rule", [rejection, traversal])
@pytest.mark.parametrize(
    ("laws", "num_children", "accepted"),
    [
        *[(B, 1, Fraction(7, 10)), (B, 2, Fraction(41, 50))],
        *[(F, 1, Fraction(3, 5)), (F, 2, Fraction(107, 140))],
        *[(G, 1, Fraction(".641")), (G, 2, Fraction(".768"))],
    ],
)
def test_siblings_without_replacement_accept_the_published_share(
    laws: tuple[Row, Row], num_children: int, accepted: Fraction, rule: Rule
) -> None:
    """DIST-11, DIST-12: the vectors E, F and G, of which the last is known to three digits."""
    tolerance = Fraction(1, 1000) if laws is G else 0
    value = expected_accepted(rule, laws, (-1,) * num_children)
    assert abs(value - accepted) <= tolerance


@pytest.mark.parametrize("rule", [match, rejection, traversal])
@pytest.mark.parametrize(
    ("laws", "top", "accepted"),
    [(B, (2, 1), "1/2"), (F, (3, 2), "3/10"), (G, (0, 2), "1/2")],
)
def test_deterministic_siblings_accept_their_share_of_p(
    laws: tuple[Row, Row], top: tuple[int, ...], accepted: str, rule: Rule
) -> None:
    draft = fixed(DraftTree(top, (-1, -1)))
    assert enumerate_round(rule, constant(laws[0]), draft, length=1).accepted == Fraction(accepted)


@pytest.mark.parametrize("rule", [match, rejection, traversal])
def test_tree_of_depth_one_accepts_the_sum_of_p_over_its_children(rule: Rule) -> None:
    """DRAFT-8."""
    p = row(1, 2, 3, 4, 5, 6, 7, 8)
    draft = fixed(DraftTree((0, 1, 2, 3), (-1,) * 4))
    assert enumerate_round(rule, constant(p), draft, length=1).accepted == sum(p[:4])


@pytest.mark.parametrize(
    ("laws", "rule", "accepted"),
    [
        (B, rejection, "3731/2500"),
        (B, traversal, "3821/2500"),
        (F, rejection, "26429/19600"),
        (F, traversal, "3917/2800"),
    ],
)
def test_binary_tree_acceptance_is_the_published_one(
    laws: tuple[Row, Row], rule: Rule, accepted: str
) -> None:
    """Vectors H and I: depth 2, two children each, sampled without replacement."""
    # Floats for speed: there are up to 12^3 drafts.
    p, q = (cast(Row, tuple(map(float, law))) for law in laws)
    drafting = sampled(constant(q), (-1, -1, 0, 0, 1, 1))
    round_ = enumerate_round(rule, constant(p), drafting, length=1, to_array=double_array)
    assert float(round_.accepted) == pytest.approx(float(Fraction(accepted)), abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_block_never_accepts_fewer_than_rejection(seed: int) -> None:
    target = random_model(seed, 3)
    drafting = sampled(random_model(seed + 100, 3), chain_parents(3))
    one_by_one = enumerate_round(rejection, target, drafting, length=1).accepted
    assert enumerate_round(block, target, drafting, length=1).accepted >= one_by_one


@pytest.mark.parametrize("rule", [match, rejection, traversal])
@pytest.mark.parametrize("seed", range(4))
def test_sibling_never_lowers_acceptance_of_a_chain(rule: Rule, seed: int) -> None:
    """CACHE-8: paths [[0], [1], [0, 0]] accept at least what [[0], [0, 0]] do."""
    target, drafter = random_model(seed, 3), random_model(seed + 100, 3)
    shapes = [
        (sampled(drafter, (-1, 0)), sampled(drafter, (-1, -1, 0))),
        (fixed(DraftTree((2, 0), (-1, 0))), fixed(DraftTree((2, 1, 0), (-1, -1, 0)))),
    ]
    for chain, tree in shapes:
        fewer = enumerate_round(rule, target, chain, length=1).accepted
        assert enumerate_round(rule, target, tree, length=1).accepted >= fewer
