"""Arithmetic on distributions: exact in fractions, accurate in floats, and without side effects."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from outrider.proof.enumeration import double_tensor, exact_array
from outrider.proof.toys import row
from outrider.types import DraftTree
from outrider.verification.law import draft_law, residual, total


def test_draft_law_removes_earlier_siblings_and_leaves_q_alone() -> None:
    q, p = row(".2", ".3", ".5"), row(1, 1, 1)
    for to_array in (exact_array, double_tensor):
        tree = DraftTree((2, 0), (-1, -1), to_array([q, q]))
        law = draft_law(tree, [0, 1], to_array(p))
        assert law.tolist() == pytest.approx([0.4, 0.6, 0.0])
        assert tree.q is not None and tree.q.tolist() == to_array([q, q]).tolist()


def test_residual_is_exact_in_fractions() -> None:
    weights, mass = residual(exact_array(row(".5", ".3", ".2")), exact_array(row(2, 3, 5)))
    assert weights.tolist() == [1, 0, 0]
    assert mass == Fraction(3, 10)


def test_residual_without_excess_is_p_itself() -> None:
    p = torch.tensor([0.5, 0.5])
    weights, mass = residual(p, p, scale=0.9)
    assert weights is p and mass == 0


def test_total_of_a_large_vocabulary_is_accurate_in_single_precision() -> None:
    p = torch.randn(150_000, generator=torch.Generator().manual_seed(0)).mul(3).softmax(0)
    assert total(p) == pytest.approx(float(p.double().sum()), abs=1e-6)
