"""Block verification: equal to its formula, and better than the ways it has been got wrong."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import prod
from typing import Any, Literal

import pytest

from outrider.proof.enumeration import Law, enumerate_round, exact_array
from outrider.proof.enumeration import VerificationRule as Rule
from outrider.proof.toys import A, chain_parents, constant, random_model, sampled
from outrider.types import DraftTree, Verification
from outrider.verification import Randomness, TargetRows, verify

block: Rule = partial(verify, "block")
rejection: Rule = partial(verify, "rejection")


@dataclass(frozen=True)
class BlockRule:
    """Block verification written out from its formulas, for chains."""

    scans_all: bool = True
    accepts: Literal["block", "token", "joint ratio"] = "block"

    def __call__(self, rows: TargetRows, tree: DraftTree, randomness: Randomness) -> Verification:
        assert tree.q is not None
        g, q = len(tree), [law.tolist() for law in tree.q]
        p: Any = [rows.probs(i).tolist() for i in range(g + 1)]
        ratios = [p[i][token] / q[i][token] for i, token in enumerate(tree.tokens)]
        weights = [Fraction(1)]
        for ratio in ratios:
            weights.append(min(Fraction(1), weights[-1] * ratio))
        accepted = 0
        for i in range(1, g + 1):
            passes: Any = residual_mass_share(weights[i], p[i], q[i]) if i < g else weights[g]
            if self.accepts == "token":
                passes = min(1, ratios[i - 1])
            elif self.accepts == "joint ratio" and i == g:
                passes = min(1, prod(ratios))
            if randomness.accept(i, passes):
                accepted = i
            elif not self.scans_all:
                break
        left = p[g]
        if accepted < g:
            gains = excess(weights[accepted], p[accepted], q[accepted])
            left = gains if any(gains) else p[accepted]
        return Verification(tuple(range(accepted)), randomness.draw(99, exact_array(left)))


def excess(weight: Fraction, p: list[Fraction], q: list[Fraction]) -> list[Fraction]:
    return [max(Fraction(0), weight * a - b) for a, b in zip(p, q, strict=True)]


def residual_mass_share(weight: Fraction, p: list[Fraction], q: list[Fraction]) -> Fraction:
    mass = sum(excess(weight, p, q), Fraction(0))
    return mass / (mass + 1 - weight) if mass + 1 > weight else Fraction(1)


def case_a(rule: Rule, length: int) -> tuple[Law, Fraction]:
    result = enumerate_round(
        rule, constant(A[0]), sampled(constant(A[1]), chain_parents(2)), length
    )
    return {text: chance for text, chance in result.law.items() if chance}, result.accepted


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("num_drafts", [1, 2, 3])
def test_block_rule_is_its_formula(seed: int, num_drafts: int) -> None:
    target = random_model(seed, 3)
    drafting = sampled(random_model(seed + 50, 3), chain_parents(num_drafts))
    formula = enumerate_round(BlockRule(), target, drafting, length=num_drafts + 1)
    assert enumerate_round(block, target, drafting, length=num_drafts + 1) == formula


def test_block_stopped_at_the_first_failure_changes_the_law() -> None:
    """DIST-6."""
    law, accepted = case_a(BlockRule(scans_all=False), length=1)
    assert (law, accepted) == ({(1,): Fraction(1)}, Fraction(5, 9))
    assert case_a(block, length=1) == (
        {(0,): Fraction(1, 3), (1,): Fraction(2, 3)},
        Fraction(11, 9),
    )


def test_block_with_raw_joint_ratio_changes_the_law_of_pairs_only() -> None:
    """DIST-7: the first token's marginal is right, so marginals are not enough."""
    ninths = {(0, 0): 1, (0, 1): 2, (1, 0): 2, (1, 1): 4}
    right = {pair: Fraction(count, 9) for pair, count in ninths.items()}
    faulty, accepted = case_a(BlockRule(accepts="joint ratio"), length=2)
    assert faulty == {**right, (1, 0): Fraction(1, 3), (1, 1): Fraction(1, 3)}
    assert accepted == Fraction(4, 3)
    assert case_a(BlockRule(accepts="joint ratio"), length=1)[0] == case_a(block, length=1)[0]
    assert case_a(block, length=2)[0] == right


def test_block_with_token_wise_acceptance_changes_the_law() -> None:
    """DIST-5: accepting one by one, but recovering as block verification does."""
    right = case_a(block, length=2)[0]
    assert case_a(BlockRule(scans_all=False, accepts="token"), length=2)[0] != right
    assert case_a(rejection, length=2)[0] == right
    assert case_a(rejection, length=1)[1] == Fraction(10, 9)
