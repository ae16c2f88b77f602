"""Drafts that are drawn under a grammar: nothing is drawn that could not be accepted."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from outrider.errors import NumericsError
from outrider.sampling.grammar import Grammar
from outrider.sampling.grammar_state import GrammarState
from outrider.sampling.noise import KeyedNoise
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.types import Rule
from support.byte_vocabulary import EOS, VOCAB, begin

A, B, C, X = (ord(letter) for letter in "abcx")
RULES: list[Rule] = ["match", "rejection"]


def sampler(
    grammar: GrammarState | None, *, temperature: float = 1.0, rule: Rule = "match", top_k: int = 0
) -> KeyedDraftSampler:
    noise = KeyedNoise(5)
    return KeyedDraftSampler(
        temperature, noise, rule, top_k=top_k, vocab_size=VOCAB, grammar=grammar
    )


def logits(rows: int, width: int = VOCAB) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(rows, width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_each_row_draws_what_the_grammar_allows_after_its_own_path(
    temperature: float, rule: Rule
) -> None:
    draws = sampler(begin(Grammar.regex("x|ab|ac")), temperature=temperature, rule=rule)
    found = draws.candidates(logits(3), [4, 5, 5], 5, paths=[(), (A,), (X,)])
    assert [set(row) for row in found.tokens] == [{A, X}, {B, C}, {EOS}]
    if found.q is not None:
        assert [row.nonzero().flatten().tolist() for row in found.q] == [[A, X], [B, C], [EOS]]
        assert found.q.sum(-1).tolist() == pytest.approx([1, 1, 1])
    token, q = draws.draw(logits(1)[0], 5, (A,))
    assert token in (B, C)
    assert q is None or q.nonzero().flatten().tolist() == [B, C]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", RULES)
def test_a_grammar_is_read_in_the_targets_ids_where_a_drafter_has_its_own(
    rule: Rule, temperature: float
) -> None:
    """GRAM-4"""
    ids = torch.tensor([0, 1, 5, 8])
    draws = sampler(begin(Grammar.regex("\x05")), rule=rule, temperature=temperature)
    found = draws.candidates(logits(1, 4), [3], 4, ids, paths=[()])
    assert found.tokens == [[5]]


def test_the_grammar_comes_before_the_tail_is_cut_as_the_targets_does() -> None:
    row = torch.zeros(1, VOCAB)
    row[0, C] = 9.0
    found = sampler(begin(Grammar.regex("a|b")), top_k=1).candidates(row, [3], 3, paths=[()])
    assert set(found.tokens[0]) <= {A, B} and found.tokens[0]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_is_drafted_where_the_grammar_leaves_nothing(
    temperature: float, rule: Rule
) -> None:
    ids = torch.tensor([0, 1, 5, 8, A])
    draws = sampler(begin(Grammar.regex("ab")), temperature=temperature, rule=rule)
    found = draws.candidates(logits(2, 5), [3, 4], 2, ids, paths=[(), (A,)])
    assert found.tokens == [[A], []]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_is_drafted_behind_the_end_of_the_text(temperature: float, rule: Rule) -> None:
    draws = sampler(begin(Grammar.regex("ab?")), temperature=temperature, rule=rule)
    found = draws.candidates(logits(3), [4, 5, 6], 5, paths=[(A,), (A, EOS), (A, EOS, EOS)])
    assert [set(row) for row in found.tokens] == [{B, EOS}, set(), set()]


def test_a_single_draw_from_which_the_grammar_leaves_nothing_is_one_as_without_it() -> None:
    """Where a token must be, a drafter may not fail for want of one."""
    row = torch.full((VOCAB,), -math.inf, dtype=torch.float64)
    row[X] = 0.0
    assert sampler(begin(Grammar.regex("ab"))).draw(row, 3, ()) == (X, None)


def test_draft_logits_without_any_token_are_a_fault_still() -> None:
    nothing = torch.full((1, VOCAB), -math.inf, dtype=torch.float64)
    with pytest.raises(NumericsError, match="leave no token"):
        sampler(None).candidates(nothing, [3], 2, paths=[()])
    with pytest.raises(NumericsError, match="leave no token"):
        sampler(begin(Grammar.regex("ab"))).candidates(nothing * math.nan, [3], 2, paths=[()])


def test_a_drafter_that_does_not_say_what_came_before_is_left_alone() -> None:
    held, free = (sampler(state) for state in (begin(Grammar.regex("ab")), None))
    drawn = [draws.candidates(logits(2), [3, 4], 4).tokens for draws in (held, free)]
    assert drawn[0] == drawn[1]
    assert held.draw(logits(1)[0], 3) == free.draw(logits(1)[0], 3)


def test_under_match_the_draft_of_an_exact_drafter_is_the_token_the_target_draws() -> None:
    state = begin(Grammar.regex("[a-z]{3}"))
    scores = logits(1)
    for length, path in enumerate([(), (A,), (A, B)]):
        token, _ = sampler(state).draw(scores[0], 7 + length, path)
        masked = scores.clone()
        state.apply(masked, [path])
        expected, _ = sampler(None).draw(masked[0], 7 + length)
        assert token == expected and masked[0, token] > -math.inf


def test_drafting_moves_nothing() -> None:
    state = begin(Grammar.regex("ab|ba"))
    sampler(state).candidates(logits(2), [3, 4], 2, paths=[(A,), (A, B)])
    assert state.forced(3) == []
    state.append((B,))
    assert state.forced(3) == [A]
