"""Rules by name, what they ask of their rows, and what they refuse."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_args

import pytest
import torch

from outrider import types
from outrider.errors import NumericsError, OptionError, VocabularyMismatchError
from outrider.proof.enumeration import (
    Choices,
    EnumeratedRandomness,
    ModelRows,
    double_tensor,
    exact_array,
)
from outrider.proof.enumeration import VerificationRule as Rule
from outrider.proof.toys import constant, row
from outrider.types import DraftTree
from outrider.verification import verify

P = constant(row(".5", ".3", ".2"))
HALF = torch.tensor([0.5, 0.5, 0.0])

rules_with_q = pytest.mark.parametrize(
    "rule",
    [partial(verify, "rejection"), partial(verify, "block"), partial(verify, "traversal")],
    ids=["rejection", "block", "traversal"],
)


@dataclass
class ScriptedRandomness:
    """Accepts or rejects as told; draws the likeliest index; keeps what it was asked."""

    answers: dict[int, bool]
    probabilities: dict[int, float] = field(default_factory=dict)
    drawn: list[list[Any]] = field(default_factory=list)

    def accept(self, key: int, probability: float) -> bool:
        assert 0 <= probability <= 1
        self.probabilities[key] = probability
        return self.answers[key]

    def draw(self, key: int, weights: Any) -> int:
        self.drawn.append(weights.tolist())
        return int(weights.argmax())


@pytest.mark.parametrize("name", get_args(types.Rule))
def test_every_rule_name_verifies_an_empty_tree(name: types.Rule) -> None:
    rows = ModelRows(constant(row(0, 0, 1)), DraftTree(), choices=Choices([]))
    verification = verify(name, rows, DraftTree(), EnumeratedRandomness(Choices([])))
    assert (verification.path, verification.next_token) == ((), 2)


def test_unknown_rule_is_an_error_naming_the_choices() -> None:
    rows = ModelRows(P, DraftTree())
    with pytest.raises(OptionError, match="unknown rule 'typical'; it is one of match, rejection"):
        verify("typical", rows, DraftTree(), ScriptedRandomness({}))  # type: ignore[arg-type]


@pytest.mark.parametrize("q", [None, HALF.expand(2, 3)])
def test_block_refuses_a_tree_that_branches(q: torch.Tensor | None) -> None:
    tree = DraftTree((0, 1), (-1, -1), q)
    with pytest.raises(OptionError, match="node 1 hangs off -1 rather than 0"):
        verify("block", ModelRows(P, tree, double_tensor), tree, ScriptedRandomness({}))


@rules_with_q
@pytest.mark.parametrize(
    ("tokens", "q", "error", "text"),
    [
        ((0,), torch.ones(1, 4) / 4, VocabularyMismatchError, "4 entries; .* vocabulary has 3"),
        ((0,), torch.ones(1, 1), VocabularyMismatchError, "1 entries; .* vocabulary has 3"),
        ((3,), HALF[None], VocabularyMismatchError, "token 3; .* vocabulary is 0 to 2"),
        ((-1,), HALF[None], VocabularyMismatchError, "token -1; .* vocabulary is 0 to 2"),
        ((2,), HALF[None], NumericsError, "token 2, to which its q gives probability 0"),
        ((0,), HALF[None] * float("nan"), NumericsError, "gives probability nan"),
    ],
)
def test_draft_that_cannot_have_come_from_its_q_is_an_error(
    rule: Rule, tokens: tuple[int, ...], q: torch.Tensor, error: type[Exception], text: str
) -> None:
    tree = DraftTree.chain(tokens, q)
    with pytest.raises(error, match=text):
        rule(ModelRows(P, tree, double_tensor), tree, ScriptedRandomness({}))


@pytest.mark.parametrize("rule", [partial(verify, "rejection"), partial(verify, "traversal")])
def test_sampled_siblings_with_the_same_token_are_an_error(rule: Rule) -> None:
    """DIST-12: once rejected, a token has left q; drawn again it did not come from there."""
    tree = DraftTree((0, 0), (-1, -1), HALF.expand(2, 3))
    with pytest.raises(NumericsError, match="after its earlier siblings"):
        rule(ModelRows(P, tree, double_tensor), tree, ScriptedRandomness({0: False}))


@rules_with_q
def test_equal_laws_and_a_forced_rejection_draw_from_p(rule: Rule) -> None:
    """DIST-10: p and q differ by rounding alone, yet the draft is rejected."""
    p = [0.5, 0.3, 0.2]
    q = torch.tensor([p], dtype=torch.float64) * (1 + 1e-8)
    tree = DraftTree.chain((0,), q)
    randomness = ScriptedRandomness({0: False})
    rule(ModelRows(P, tree, double_tensor), tree, randomness)
    assert randomness.drawn == [p]


@rules_with_q
def test_certain_draft_rejected_by_rounding_draws_from_p(rule: Rule) -> None:
    """DIST-10, with one-hot laws."""
    tree = DraftTree.chain((1,), torch.tensor([[0.0, 1.0, 0.0]]))
    randomness = ScriptedRandomness({0: False})
    assert rule(ModelRows(constant(row(0, 1, 0)), tree, double_tensor), tree, randomness) == (
        types.Verification((), 1)
    )


def test_block_forced_to_reject_a_certain_leaf_still_is_certain_of_what_precedes_it() -> None:
    """DIST-10, further down a chain."""
    tree = DraftTree.chain((0, 1), exact_array([P(()), P(())]))
    randomness = ScriptedRandomness({1: False, 0: True})
    verification = verify("block", ModelRows(P, tree), tree, randomness)
    assert verification == types.Verification((0,), 0)
    assert randomness.probabilities == {1: 1, 0: 1}
    assert randomness.drawn == [list(P(()))]


@pytest.mark.parametrize("rule", [partial(verify, "rejection"), partial(verify, "traversal")])
def test_residual_subtracts_by_token(rule: Rule) -> None:
    """DIST-8: p=(.2,.5,.3), q=(.3,.1,.6) leave token 1 only; sorted they would leave token 0."""
    tree = DraftTree.chain((2,), exact_array([row(".3", ".1", ".6")]))
    randomness = ScriptedRandomness({0: False})
    rule(ModelRows(constant(row(".2", ".5", ".3")), tree), tree, randomness)
    assert randomness.drawn == [[0, 1, 0]]


def test_rejection_asks_for_rows_on_the_accepted_path_only() -> None:
    """PROC-7: what comes after the first rejection is nobody's business."""
    tree = DraftTree((0, 1, 0, 1), (-1, -1, 1, 0), exact_array([row(1, 1, 1)] * 4))
    rows = ModelRows(P, tree)
    verify("rejection", rows, tree, ScriptedRandomness({0: False, 1: True, 2: False}))
    assert list(rows.asked) == [0, 2]


def test_block_asks_for_no_row_beyond_an_impossible_token() -> None:
    tree = DraftTree.chain((0, 2, 0), exact_array([row(1, 1, 1)] * 3))
    rows = ModelRows(constant(row(1, 1, 0)), tree)
    verify("block", rows, tree, ScriptedRandomness({0: True, 1: False}))
    assert list(rows.asked) == [0, 1]


@rules_with_q
def test_accepting_everything_adds_a_bonus_token(rule: Rule) -> None:
    tree = DraftTree.chain((1, 2), exact_array([row(1, 1, 1)] * 2))
    randomness = ScriptedRandomness({0: True, 1: True})
    verification = rule(ModelRows(P, tree), tree, randomness)
    assert verification == types.Verification((0, 1), 0)
    assert randomness.drawn == [list(P(()))]
