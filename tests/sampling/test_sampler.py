"""How drafts are drawn: with the target's noise under match, with fresh noise when rejecting."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from torch import Tensor

from outrider.errors import NumericsError, OptionError
from outrider.sampling.draw import race_keys
from outrider.sampling.noise import KeyedNoise, Stream
from outrider.sampling.params import SamplingParams
from outrider.sampling.pipeline import LogitsPipeline
from outrider.sampling.rows import SampledRows
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.types import NO_DRAFT, Rule

V = 40
SIGMAS = 6.0
LOGITS = torch.randn(V, generator=torch.Generator().manual_seed(0))
REJECTING: list[Rule] = ["rejection", "block", "traversal"]


@pytest.mark.parametrize("rule", ["match", *REJECTING])
def test_greedy_drafts_are_the_argmax_and_carry_no_q(rule: Rule) -> None:
    sampler = KeyedDraftSampler(0.0, KeyedNoise(1), rule)
    assert sampler.is_greedy
    assert sampler.draw(LOGITS, 9) == (int(LOGITS.argmax()), None)
    assert sampler.draw(torch.tensor([1.0, 2.0, 2.0]), 9) == (1, None)


def test_under_match_a_drafter_equal_to_the_target_always_meets_it() -> None:
    noise = KeyedNoise(21)
    sampler = KeyedDraftSampler(0.7, noise, "match")
    pipeline = LogitsPipeline(SamplingParams(temperature=0.7), (1,), (), V, LOGITS.device)
    for position in range(1, 200):
        row = SampledRows(LOGITS.unsqueeze(0), NO_DRAFT, pipeline, noise, position)
        assert sampler.draw(LOGITS, position) == (row.token(0), None)


@pytest.mark.parametrize("rule", ["match", *REJECTING])
def test_a_drafter_can_cut_its_tail_as_the_target_does(rule: Rule) -> None:
    noise, options = KeyedNoise(4), {"top_k": 12, "top_p": 0.8, "min_p": 0.02}
    sampler = KeyedDraftSampler(0.9, noise, rule, top_k=12, top_p=0.8, min_p=0.02)
    params = SamplingParams(temperature=0.9).with_options(**options)
    pipeline = LogitsPipeline(params, (1,), (), V, LOGITS.device)
    for position in range(1, 50):
        row = SampledRows(LOGITS.unsqueeze(0), NO_DRAFT, pipeline, noise, position)
        token, q = sampler.draw(LOGITS, position)
        if q is None:
            assert token == row.token(0)
        else:
            assert torch.equal(q, row.probs(0))
            assert q[token] > 0


@pytest.mark.parametrize(
    ("rule", "dtype"), [("rejection", torch.bfloat16), ("block", torch.float64)]
)
def test_q_is_the_law_the_draft_was_drawn_from(rule: Rule, dtype: torch.dtype) -> None:
    """DIST-9."""
    law = torch.tensor([0.5, 0.3, 0.15, 0.05])
    logits = (law.log() * 2).to(dtype)
    sampler = KeyedDraftSampler(2.0, KeyedNoise(3), rule)
    counts, rounds = torch.zeros(4, dtype=torch.float64), 2000
    for position in range(rounds):
        token, q = sampler.draw(logits, position)
        counts[token] += 1
    assert q is not None
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert torch.equal(q, (logits.to(wide) / 2).softmax(-1))
    chi_square = float(((counts - q.double() * rounds) ** 2 / (q.double() * rounds)).sum())
    assert chi_square < 44.9  # 1 - 1e-9 quantile at 3 degrees of freedom


@pytest.mark.parametrize("rule", REJECTING)
def test_a_position_drafted_again_gets_fresh_noise(rule: Rule) -> None:
    """Under block verification, that a draft was dropped depends on the drafts after it."""
    sampler = KeyedDraftSampler(1.0, KeyedNoise(3), rule)
    pairs = 1000
    logits = torch.zeros(4)
    same = sum(
        sampler.draw(logits, position)[0] == sampler.draw(logits, position)[0]
        for position in range(pairs)
    )
    assert abs(same / pairs - 0.25) < SIGMAS * math.sqrt(0.1875 / pairs)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_draft_logits_that_are_not_numbers_are_an_error(temperature: float) -> None:
    sampler = KeyedDraftSampler(temperature, KeyedNoise(0), "match")
    with pytest.raises(NumericsError, match="position 6"):
        sampler.draw(torch.tensor([1.0, math.nan]), 6)


# -- candidates ---------------------------------------------------------------------------------

OPTIONS = {"top_k": 12, "top_p": 0.9, "min_p": 0.01}
ROWS = torch.randn(5, V, generator=torch.Generator().manual_seed(1)) * 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_greedy_candidates_are_the_highest_logits_and_of_equals_the_lowest_ids(
    dtype: torch.dtype,
) -> None:
    sampler = KeyedDraftSampler(0.0, KeyedNoise(1), "rejection")
    logits = (ROWS * 4).round().to(dtype)  # many ties
    for count in (1, 3, 8, V, V + 5):
        found = sampler.candidates(logits, [9] * 5, count)
        assert found.q is None
        for row, tokens, chances in zip(logits, found.tokens, found.chances, strict=True):
            assert tokens == sorted(range(V), key=lambda t: (-float(row[t]), t))[:count]
            law = row.double().softmax(-1)
            assert chances == pytest.approx([float(law[token]) for token in tokens], rel=1e-4)


def test_candidates_break_ties_by_the_targets_ids() -> None:
    sampler = KeyedDraftSampler(0.0, KeyedNoise(1), "match")
    ids = torch.randperm(300, generator=torch.Generator().manual_seed(2)) + 7
    found = sampler.candidates(torch.zeros(2, 300), [5, 6], 4, ids)
    assert found.tokens == [[7, 8, 9, 10]] * 2
    assert found.chances[0] == pytest.approx([1 / 300] * 4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("options", [{}, OPTIONS])
def test_the_first_candidate_is_the_token_that_is_drawn(
    options: dict[str, float], dtype: torch.dtype
) -> None:
    sampler = KeyedDraftSampler(0.8, KeyedNoise(5), "match", **options)  # type: ignore[arg-type]
    for start in range(0, 200, 5):
        positions = [start, start + 1, start, start + 2, start]
        found = sampler.candidates(ROWS.to(dtype), positions, 3)
        drawn = [sampler.draw(r.to(dtype), p)[0] for r, p in zip(ROWS, positions, strict=True)]
        assert [tokens[0] for tokens in found.tokens] == drawn
        assert found.q is None


def test_candidates_come_in_the_order_in_which_the_targets_noise_favours_them() -> None:
    noise = KeyedNoise(5)
    sampler = KeyedDraftSampler(1.0, noise, "match")
    keys = race_keys(ROWS, noise, Stream.TARGET, [3, 4, 3, 4, 5])
    found = sampler.candidates(ROWS, [3, 4, 3, 4, 5], 6)
    for row, tokens, chances in zip(keys, found.tokens, found.chances, strict=True):
        assert tokens == row.argsort(descending=True)[:6].tolist()
        assert chances == pytest.approx(row.softmax(-1)[tokens].tolist(), rel=1e-4)


@pytest.mark.parametrize("options", [{}, OPTIONS])
@pytest.mark.parametrize("vocab_size", [None, 200])
def test_a_drafter_with_ids_of_its_own_shares_the_noise_of_the_targets_ids(
    options: dict[str, float], vocab_size: int | None
) -> None:
    noise = KeyedNoise(6)
    sampler = KeyedDraftSampler(0.8, noise, "match", vocab_size=vocab_size, **options)  # type: ignore[arg-type]
    ids = torch.randperm(150, generator=torch.Generator().manual_seed(3))[:V]
    wide = torch.full((5, 200), -math.inf)
    wide[:, ids] = ROWS
    for position in range(100):
        found = sampler.candidates(ROWS, [position] * 5, 4, ids)
        assert [row[0] for row in found.tokens] == [sampler.draw(row, position)[0] for row in wide]
        assert found.tokens == sampler.candidates(wide, [position] * 5, 4).tokens


def test_a_match_is_likelier_among_more_candidates_than_chance_allows() -> None:
    """Shared noise: the target's token is among the first few nearly always."""
    noise = KeyedNoise(9)
    target, near = KeyedDraftSampler(1.0, noise, "match"), LOGITS + 0.3 * ROWS[0]
    hits = [0, 0]
    for position in range(400):
        token, _ = target.draw(LOGITS, position)
        (tokens,) = target.candidates(near.unsqueeze(0), [position], 4).tokens
        hits[0] += tokens[0] == token
        hits[1] += token in tokens
    assert hits[0] > 200 and hits[1] > 350


def sample_pairs(
    sampler: KeyedDraftSampler, law: Tensor, rounds: int, ids: Tensor | None = None
) -> Tensor:
    """Count ordered pairs of tokens drawn for rows that all stand at one position."""
    counts = torch.zeros(V, V, dtype=torch.float64)
    for position in range(rounds // 50):
        found = sampler.candidates(law.log().expand(50, -1), [position] * 50, 2, ids)
        for first, second in found.tokens:
            counts[first, second] += 1
    return counts


@pytest.mark.parametrize("rule", REJECTING)
def test_candidates_are_drawn_without_replacement_with_noise_of_their_own(rule: Rule) -> None:
    """The law of two draws, though 50 rows at a time stand at one position."""
    law = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    counts = sample_pairs(KeyedDraftSampler(1.0, KeyedNoise(3), rule), law, 5000)[:4, :4]
    expected = 5000 * law[:, None] * law[None, :] / (1 - law[:, None])
    expected.fill_diagonal_(0)
    assert not bool(counts.diagonal().any())
    apart = expected > 0
    chi_square = float(((counts - expected) ** 2 / expected)[apart].sum())
    assert chi_square < 67.0  # 1 - 1e-9 quantile at 11 degrees of freedom


def test_rows_at_one_position_and_calls_after_one_another_are_independent() -> None:
    """DIST-2: drafts that shared noise would agree far more often."""
    sampler = KeyedDraftSampler(1.0, KeyedNoise(3), "rejection")
    flat, pairs = torch.zeros(2, 4), 1000
    rows = calls = 0
    for position in range(pairs):
        one, other = (sampler.candidates(flat, [position] * 2, 1).tokens for _ in range(2))
        rows += one[0] == one[1]
        calls += one[0] == other[0]
    for same in (rows, calls):
        assert abs(same / pairs - 0.25) < SIGMAS * math.sqrt(0.1875 / pairs)


@pytest.mark.parametrize("rule", REJECTING)
def test_a_single_candidate_is_what_draw_would_give_with_the_same_law(rule: Rule) -> None:
    one, other = (KeyedDraftSampler(0.7, KeyedNoise(2), rule, top_k=12) for _ in range(2))
    for position in range(100):
        token, q = one.draw(LOGITS, position)
        found = other.candidates(LOGITS.unsqueeze(0), [position], 1)
        assert found.tokens == [[token]]
        assert q is not None and found.q is not None and torch.equal(found.q[0], q)
        assert found.chances[0] == pytest.approx([float(q[token])])


def test_the_law_of_candidates_lies_over_the_targets_ids() -> None:
    """DIST-3: q is that of every row before anything was drawn, on the CPU."""
    sampler = KeyedDraftSampler(0.7, KeyedNoise(2), "rejection", vocab_size=100, top_k=12)
    ids = torch.randperm(100, generator=torch.Generator().manual_seed(3))[:V]
    found = sampler.candidates(ROWS.bfloat16(), range(5), 3, ids)
    assert found.q is not None and found.q.shape == (5, 100) and found.q.dtype == torch.float32
    plain = sampler.candidates(ROWS.bfloat16(), range(5), 3).q
    assert plain is not None and torch.equal(found.q[:, ids], plain)
    torch.testing.assert_close(found.q.sum(-1), torch.ones(5))
    assert {token for row in found.tokens for token in row} <= set(ids.tolist())
    for row, tokens, chances in zip(found.q, found.tokens, found.chances, strict=True):
        assert chances == pytest.approx(row[tokens].tolist(), rel=1e-5)


def test_ids_without_the_size_of_the_vocabulary_are_an_error_where_laws_are_wanted() -> None:
    sampler = KeyedDraftSampler(0.7, KeyedNoise(2), "rejection")
    with pytest.raises(OptionError, match="does not know vocab_size"):
        sampler.candidates(ROWS, range(5), 3, torch.arange(V))


@pytest.mark.parametrize(("temperature", "rule"), [(0.0, "match"), (1.0, "match"), (1.0, "block")])
def test_a_row_has_no_more_candidates_than_possible_tokens(temperature: float, rule: Rule) -> None:
    sampler = KeyedDraftSampler(temperature, KeyedNoise(2), rule)
    logits = torch.full((3, V), -math.inf)
    logits[0, 7], logits[1, :2], logits[2] = 1.0, 2.0, 3.0
    found = sampler.candidates(logits, [1, 2, 3], 4)
    assert [len(row) for row in found.tokens] == [1, 2, 4]
    assert (found.tokens[0], sorted(found.tokens[1])) == ([7], [0, 1])
    assert [len(row) for row in found.chances] == [1, 2, 4]


def test_a_token_whose_q_rounds_to_nothing_is_never_drawn() -> None:
    """The second draw would otherwise always be one that q rules out."""
    sampler = KeyedDraftSampler(1.0, KeyedNoise(2), "rejection")
    logits = torch.tensor([[0.0, -200.0, -300.0]])
    found = sampler.candidates(logits, [4], 3)
    assert found.tokens == [[0]]
    assert found.q is not None and found.q.tolist() == [[1, 0, 0]]


@pytest.mark.parametrize(("temperature", "rule"), [(0.0, "match"), (1.0, "match"), (1.0, "block")])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_row_without_any_candidate_is_an_error_naming_its_position(
    temperature: float, rule: Rule, bad: float
) -> None:
    sampler = KeyedDraftSampler(temperature, KeyedNoise(0), rule)
    logits = torch.zeros(2, V)
    logits[1] = -math.inf
    logits[1, 3] = bad
    with pytest.raises(NumericsError, match="position 6"):
        sampler.candidates(logits, [5, 6], 3)


def test_laws_come_with_sampled_drafts_under_the_rules_that_reject_alone() -> None:
    for rule in get_args(Rule):
        assert KeyedDraftSampler(1.0, KeyedNoise(0), rule).has_laws == (rule != "match")
        assert not KeyedDraftSampler(0.0, KeyedNoise(0), rule).has_laws
