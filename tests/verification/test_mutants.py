"""Rules wrong on purpose: each well-known fault fails the checks that the real rules pass.

A fault changes the emitted law, or leaves it right and lowers acceptance; where the faulty value
is known from the literature, it is asserted too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from outrider.proof.enumeration import (
    Choices,
    EnumeratedRandomness,
    ModelRows,
    Row,
    continuations,
    enumerate_round,
    exact_array,
    first_token,
    runs,
)
from outrider.proof.enumeration import VerificationRule as Rule
from outrider.proof.toys import B, F, chain_parents, constant, fixed, random_model, row, sampled
from outrider.types import DraftTree, Verification
from outrider.verification import Randomness, TargetRows, verify

rejection: Rule = partial(verify, "rejection")
block: Rule = partial(verify, "block")
traversal: Rule = partial(verify, "traversal")


def excess(p: Any, q: Any) -> list[Fraction]:
    """Return max(0, p - q), or p where that is zero everywhere."""
    difference = [max(Fraction(0), a - b) for a, b in zip(p, q, strict=True)]
    return difference if any(difference) else list(p)


def normalised(weights: Any) -> list[Fraction]:
    return [weight / sum(weights) for weight in weights]


# --- One position: siblings tried one after another, with a fault in one place -----------------


@dataclass(frozen=True)
class SiblingRule:
    """Recursive rejection at the root, written out in plain fractions."""

    removes_drawn: bool = True
    """Take a rejected sibling out of q (drafts without replacement)."""
    accepts_from_residual: bool = True
    """Test later siblings against what is left of p, not against p."""
    lenience: Fraction = Fraction(1)
    recovers_from: str = "residual"

    def __call__(self, rows: TargetRows, tree: DraftTree, randomness: Randomness) -> Verification:
        assert tree.q is not None
        p: Any = rows.probs(0).tolist()
        left, q = p, list(tree.q[0].tolist())
        for node, token in enumerate(tree.tokens):
            tested = left if self.accepts_from_residual else p
            probability = min(1, tested[token] / q[token] / self.lenience)
            if randomness.accept(node, probability):
                return Verification((node,), 0)  # what comes after it is not looked at
            unused = excess(q, left) if self.recovers_from == "reversed" else excess(left, q)
            left = normalised(unused)
            if self.removes_drawn:
                q[token] = Fraction(0)
                q = normalised(q) if any(q) else q
        return Verification((), randomness.draw(99, exact_array(self._last(p, tree, left))))

    def _last(self, p: list[Fraction], tree: DraftTree, left: list[Fraction]) -> list[Fraction]:
        if self.recovers_from == "target":
            return p
        if self.recovers_from == "sorted":
            # Sorting by probability and then subtracting by index mixes up the tokens.
            assert tree.q is not None
            descending = partial(sorted, reverse=True)
            return excess(descending(p), descending(tree.q[0].tolist()))
        return left


@pytest.mark.parametrize(
    ("laws", "num_children"), [(B, 1), (B, 2), (F, 1), (F, 2), (F, 3)], ids=str
)
def test_reference_without_a_fault_emits_the_target_law(
    laws: tuple[Row, Row], num_children: int
) -> None:
    drafting = sampled(constant(laws[1]), (-1,) * num_children)
    assert first_token(SiblingRule(), laws[0], drafting) == laws[0]
    assert first_token(rejection, laws[0], drafting) == laws[0]


@pytest.mark.parametrize(
    ("fault", "faulty"),
    [
        (SiblingRule(recovers_from="target"), row(".35", ".39", ".26")),
        (SiblingRule(recovers_from="reversed"), row(".2", ".3", ".5")),
        (SiblingRule(lenience=Fraction(1, 2)), row(".3", ".3", ".4")),
    ],
    ids=["recovered from p", "residual of q - p", "lenience"],
)
def test_wrong_recovery_changes_the_law(fault: Rule, faulty: Row) -> None:
    assert first_token(fault, B[0], sampled(constant(B[1]), (-1,))) == faulty != B[0]


def test_residual_by_sorted_index_changes_the_law() -> None:
    """DIST-8: the recovered token would be 0, which has no residual mass at all."""
    p, q = row(".2", ".5", ".3"), row(".3", ".1", ".6")
    drafting = sampled(constant(q), (-1,))
    assert first_token(SiblingRule(recovers_from="sorted"), p, drafting) != p
    assert first_token(rejection, p, drafting) == p


def test_original_q_for_later_siblings_changes_the_law() -> None:
    """DIST-11."""
    drafting = sampled(constant(F[1]), (-1, -1))
    faulty = first_token(SiblingRule(removes_drawn=False), F[0], drafting)
    assert faulty == row("699/1960", "673/1960", ".2", ".1") != F[0]
    for rule in (rejection, traversal):
        assert first_token(rule, F[0], drafting) == F[0]


@pytest.mark.parametrize("rule", [rejection, traversal], ids=["rejection", "traversal"])
def test_siblings_whose_q_is_that_of_another_node_change_the_law(rule: Rule) -> None:
    """DIST-11, at depth two: each node needs the law of its own parent."""
    target, drafter = random_model(31, 3, zeros=0), random_model(32, 3, zeros=0)
    drafting = sampled(drafter, (-1, 0, 0))

    def draft(choices: Choices) -> DraftTree:
        tree = drafting(choices)
        assert tree.q is not None
        return replace(tree, q=tree.q[[0, 0, 0]])

    expected = continuations(target, (), 3)
    assert enumerate_round(rule, target, drafting, length=3).law == expected
    assert enumerate_round(rule, target, draft, length=3).law != expected


def test_duplicates_must_be_tested_against_the_residual() -> None:
    """DIST-12: with replacement a second copy of a rejected token has no residual mass left."""

    def draft(choices: Choices) -> DraftTree:
        tokens = (choices.choose(B[1]), choices.choose(B[1]))
        return DraftTree(tokens, (-1, -1), exact_array([B[1], B[1]]))

    sound = SiblingRule(removes_drawn=False)
    assert first_token(sound, B[0], draft) == B[0]
    assert enumerate_round(sound, constant(B[0]), draft, length=1).accepted == Fraction(19, 25)
    assert first_token(replace(sound, accepts_from_residual=False), B[0], draft) != B[0]


# --- Drafts: q lost or untrue, drafts withheld --------------------------------------------------


@pytest.mark.parametrize(
    "rule", [rejection, block, traversal], ids=["rejection", "block", "traversal"]
)
@pytest.mark.parametrize("num_drafts", [1, 2])
def test_losing_q_keeps_the_law_but_lowers_acceptance(rule: Rule, num_drafts: int) -> None:
    """DIST-3: a point mass in place of q is exact, so only acceptance gives it away."""

    def q_lost(rows: TargetRows, tree: DraftTree, randomness: Randomness) -> Verification:
        return rule(rows, replace(tree, q=None), randomness)

    target, drafting = constant(B[0]), sampled(constant(B[1]), chain_parents(num_drafts))
    faulty = enumerate_round(q_lost, target, drafting, length=num_drafts + 1)
    assert faulty.law == continuations(target, (), num_drafts + 1)
    assert faulty.accepted == sum(Fraction(29, 100) ** n for n in range(1, num_drafts + 1))
    assert enumerate_round(rule, target, drafting, length=1).accepted > 2 * faulty.accepted


@pytest.mark.parametrize("num_drafts", [2, 3])
def test_point_masses_as_q_lose_what_block_gains(num_drafts: int) -> None:
    """Block verification fed the drawn tokens as one-hot rows accepts no more than match does."""

    def one_hot_q(rows: TargetRows, tree: DraftTree, randomness: Randomness) -> Verification:
        laws = [row(*(int(token == t) for t in range(3))) for token in tree.tokens]
        return block(rows, replace(tree, q=exact_array(laws)), randomness)

    target, drafting = constant(B[0]), sampled(constant(B[1]), chain_parents(num_drafts))
    faulty = enumerate_round(one_hot_q, target, drafting, length=num_drafts + 1)
    assert faulty.law == continuations(target, (), num_drafts + 1)
    assert faulty.accepted == sum(Fraction(29, 100) ** n for n in range(1, num_drafts + 1))


@pytest.mark.parametrize(
    "rule", [rejection, block, traversal], ids=["rejection", "block", "traversal"]
)
@pytest.mark.parametrize(
    ("p", "q", "faulty"),
    [
        (row(".6", ".4"), row(".8", ".2"), row(".75", ".25")),
        (row(".5", ".3", ".2"), row(".8", ".1", ".1"), row(".625", ".25", ".125")),
        (row(".5", ".3", ".2"), row(".5", ".3", ".2"), row(1, 0, 0)),
    ],
)
def test_greedy_draft_with_softmax_q_changes_the_law(
    rule: Rule, p: Row, q: Row, faulty: Row
) -> None:
    """DIST-1: a draft chosen by argmax is a point mass, whatever its softmax says."""
    assert first_token(rule, p, fixed(DraftTree.chain((0,), exact_array([q])))) == faulty != p
    assert first_token(rule, p, fixed(DraftTree.chain((0,)))) == p


@pytest.mark.parametrize("name", ["rejection", "block", "traversal"])
@pytest.mark.parametrize(
    ("p", "q", "faulty"),
    [
        (row(".7", ".3"), row(".5", ".5"), row(".85", ".15")),
        (row(".5", ".5"), row(".9", ".1"), row(".55", ".45")),
    ],
)
def test_withholding_a_draft_for_the_token_drawn_changes_the_law(
    name: Any, p: Row, q: Row, faulty: Row
) -> None:
    """DIST-4: no rule can make up for a draft that was dropped after it was drawn."""

    def draft(choices: Choices) -> DraftTree:
        tree = sampled(constant(q), (-1,))(choices)
        return DraftTree() if tree.tokens == (1,) else tree

    assert first_token(partial(verify, name), p, draft) == faulty != p


# --- Target rows and randomness -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["rejection", "block", "traversal"])
def test_filters_skipped_at_drafted_rows_change_the_law(name: Any) -> None:
    """DIST-15: top-k 2 applied to the bonus row alone lets the third token through."""
    raw, kept = row(4, 3, 2, 1), row(4, 3, 0, 0)
    drafting = fixed(DraftTree.chain((2,)))

    def unfiltered(text: tuple[int, ...]) -> Row:
        return raw if not text else kept

    faulty = enumerate_round(partial(verify, name), unfiltered, drafting, length=1).law
    assert faulty[(2,)] == raw[2] > 0
    assert first_token(partial(verify, name), kept, drafting) == kept


@dataclass
class GridRandomness:
    """Accepts where a number, uniform on tenths, lies below the probability."""

    tenth: int
    choices: Choices

    def accept(self, key: int, probability: Any) -> bool:
        assert (10 * probability).denominator == 1, "the grid is too coarse for this case"
        return bool(self.tenth < 10 * probability)

    def draw(self, key: int, weights: Any) -> int:
        return self.choices.choose(weights.tolist())


@pytest.mark.parametrize("is_shared", [False, True])
def test_sharing_noise_between_draft_and_acceptance_changes_the_law(is_shared: bool) -> None:
    """DIST-2: the number that picked the draft from q says too much about it to judge it."""
    q, p = B
    uniform = [Fraction(1, 10)] * 10

    def play(choices: Choices) -> int:
        tenth = choices.choose(uniform)
        token = 0 if tenth < 5 else 1 if tenth < 8 else 2
        tree = DraftTree.chain((token,), exact_array([q]))
        randomness = GridRandomness(tenth if is_shared else choices.choose(uniform), choices)
        verification = rejection(ModelRows(constant(p), tree), tree, randomness)
        return token if verification.path else verification.next_token

    law = [Fraction(0)] * 3
    for token, probability in runs(play):
        law[token] += probability
    assert (tuple(law) == p) is not is_shared


def test_enumeration_refuses_a_stream_given_out_twice() -> None:
    randomness = EnumeratedRandomness(Choices([]))
    randomness.accept(0, Fraction(1))
    with pytest.raises(AssertionError, match="decision 0 taken twice"):
        randomness.draw(0, exact_array(row(1, 1)))
