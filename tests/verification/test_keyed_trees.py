"""Sampled trees as drafters grow them, verified with keyed noise: the law of what is emitted."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor

from outrider.sampling.noise import KeyedNoise, KeyedRandomness
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.trees.growth import ShapedGrowth
from outrider.trees.shape import TreeShape
from outrider.types import DraftTree, Rule
from outrider.verification import verify

P = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
Q = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
SHAPE = TreeShape.of_paths([(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)])
ROUNDS = 1200
BOUND = 75.0  # 1 - 1e-9 quantile at 15 degrees of freedom


class ConstantRows:
    """A target that says p at every row."""

    def probs(self, row: int) -> Tensor:
        return P

    def token(self, row: int) -> int:
        raise AssertionError("the rules that reject draw by their own randomness")


def grow(sampler: KeyedDraftSampler, position: int) -> DraftTree:
    """Grow a two-by-two tree as a drafter does, whose logits are the same everywhere."""
    growth = ShapedGrowth(SHAPE)
    while growth.frontier:
        places = [position + growth.depth(node) for node in growth.frontier]
        logits = Q.log().expand(len(places), -1)
        found = sampler.candidates(logits, places, max(growth.counts))
        growth.add(found.tokens, found.chances, found.q)
    return growth.tree(len(SHAPE))


@functools.cache
def chi_square(rule: Rule, *, tells_q: bool = True) -> tuple[float, float]:
    """Count the first two tokens of rounds; returns chi-square against p twice, and E[accepted]."""
    noise = KeyedNoise(11)
    sampler = KeyedDraftSampler(1.0, noise, rule)
    bonus = torch.Generator().manual_seed(4)
    counts = torch.zeros(4, 4, dtype=torch.float64)
    accepted = 0
    for position in range(0, 3 * ROUNDS, 3):
        tree = grow(sampler, position)
        if not tells_q:
            tree = DraftTree(tree.tokens, tree.parents, Q.flip(0).expand(6, -1))
        found = verify(rule, ConstantRows(), tree, KeyedRandomness(noise, position))
        text = [*(tree.tokens[node] for node in found.path), found.next_token]
        text.append(int(torch.multinomial(P, 1, generator=bonus)))
        counts[text[0], text[1]] += 1
        accepted += len(found.path)
    expected = ROUNDS * P[:, None] * P[None, :]
    return float(((counts - expected) ** 2 / expected).sum()), accepted / ROUNDS


@pytest.mark.parametrize("rule", ["rejection", "traversal"])
def test_a_tree_grown_and_verified_with_keyed_noise_keeps_the_joint_law(rule: Rule) -> None:
    """DIST-2, DIST-3, DIST-11; a q that is not the one drawn from would show at once."""
    sound, accepted = chi_square(rule)
    assert sound < BOUND < chi_square(rule, tells_q=False)[0]
    assert accepted > 1


def test_traversal_accepts_more_of_the_same_trees_than_rejection() -> None:
    assert chi_square("traversal")[1] > chi_square("rejection")[1]
