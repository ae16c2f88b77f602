"""Drawing by a race: the law, and how often target and drafter meet when they share its noise."""

from __future__ import annotations

import math
from functools import lru_cache

import pytest
import torch
from torch import Tensor

from outrider.sampling.draw import (
    _rows,
    _rows_of_a_device,
    draw_row,
    fresh_keys,
    highest,
    leaders,
    race_keys,
)
from outrider.sampling.noise import KeyedNoise, Stream

NUM_ROUNDS = 20_000
SIGMAS = 6.0  # two-sided normal tail of 2e-9
CASES: dict[str, tuple[list[float], list[float], float, float]] = {
    "A": ([1 / 3, 2 / 3], [2 / 3, 1 / 3], 2 / 3, 4 / 9),
    "B": ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], 41 / 65, 29 / 100),
}


@lru_cache
def draws_of(case: str, stream: Stream, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Draw from the p and the q of a case with the same noise."""
    p, q, *_ = CASES[case]
    return draws(p, stream, seed), draws(q, stream, seed)


def draws(law: list[float] | Tensor, stream: Stream, seed: int = 1) -> Tensor:
    """Draw at each of NUM_ROUNDS positions from one law [V], or from a law for each [R, V]."""
    scores = torch.as_tensor(law, dtype=torch.float64).log().expand(NUM_ROUNDS, -1)
    return race_keys(scores, KeyedNoise(seed), stream, range(NUM_ROUNDS)).argmax(dim=-1)


def assert_share(found: Tensor, expected: float) -> None:
    error = math.sqrt(expected * (1 - expected) / NUM_ROUNDS)
    assert abs(float(found.double().mean()) - expected) < SIGMAS * error


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("stream", [Stream.TARGET, Stream.DRAFT])
def test_the_race_draws_from_the_softmax_of_its_scores(case: str, stream: Stream) -> None:
    p, q, *_ = CASES[case]
    for law, drawn in zip((p, q), draws_of(case, stream), strict=True):
        for token, probability in enumerate(law):
            assert_share(drawn == token, probability)


@pytest.mark.parametrize("case", CASES)
def test_shared_noise_makes_target_and_drafter_meet_as_often_as_theory_says(case: str) -> None:
    """Vector J: P(match) = sum_i 1 / sum_j max(p_j / p_i, q_j / q_i)."""
    p, q, expected, _ = CASES[case]
    formula = sum(
        1 / sum(max(pj / pi, qj / qi) for pj, qj in zip(p, q, strict=True))
        for pi, qi in zip(p, q, strict=True)
    )
    assert formula == pytest.approx(expected)
    from_p, from_q = draws_of(case, Stream.TARGET)
    assert_share(from_p == from_q, expected)


@pytest.mark.parametrize("case", CASES)
def test_streams_and_seeds_apart_meet_no_more_often_than_chance(case: str) -> None:
    """DIST-2: the negative control, which shared noise would fail by far."""
    _, _, shared, independent = CASES[case]
    from_p, from_q = draws_of(case, Stream.TARGET)
    assert_share(from_p == draws_of(case, Stream.DRAFT)[1], independent)
    assert_share(from_p == draws_of(case, Stream.TARGET, seed=2)[1], independent)
    with pytest.raises(AssertionError):
        assert_share(from_p == from_q, independent)
    assert shared > independent


@pytest.mark.parametrize(("recover", "sound"), [(Stream.RECOVER, True), (Stream.DRAFT, False)])
def test_drafting_accepting_and_recovering_need_streams_of_their_own(
    recover: Stream, sound: bool
) -> None:
    """DIST-2: rejection over keyed noise leaves the target's law; over shared noise it does not."""
    t = torch.randn(16, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    p, q = t.softmax(-1), (-t).softmax(-1)
    drafts = draws(q, Stream.DRAFT)
    noise = KeyedNoise(1)
    uniforms = torch.tensor(
        [noise.uniform(Stream.ACCEPT, position) for position in range(NUM_ROUNDS)]
    )
    recovered = draws((p - q).clamp(min=0), recover)
    emitted = torch.where(uniforms < (p / q)[drafts], drafts, recovered)
    expected = p * NUM_ROUNDS
    counts = torch.bincount(emitted, minlength=16)
    assert (float(((counts - expected) ** 2 / expected).sum()) < 69.8) == sound


def test_rows_at_one_position_share_its_noise() -> None:
    scores = torch.zeros(4, 30)
    keys = race_keys(scores, KeyedNoise(0), Stream.TARGET, [5, 6, 6, 5])
    assert torch.equal(keys[0], keys[3])
    assert torch.equal(keys[1], keys[2])
    assert not torch.equal(keys[0], keys[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [0.0, 1.0, 6.0, 40.0])
def test_leaving_out_tokens_that_cannot_win_changes_no_draw(
    dtype: torch.dtype, scale: float
) -> None:
    generator = torch.Generator().manual_seed(int(scale))
    scores = torch.randn(2000, generator=generator, dtype=dtype) * scale
    scores[::7] = -math.inf
    noise = KeyedNoise(8)
    for position in range(40):
        keys = race_keys(scores.unsqueeze(0), noise, Stream.TARGET, [position])[0]
        assert draw_row(scores, noise, Stream.TARGET, position) == highest(keys)


def test_tokens_far_below_the_best_still_win_their_share() -> None:
    """One token 10.5 above each of 100,000: they hold three quarters of the mass together."""
    scores = torch.zeros(100_001)
    scores[0] = 10.5
    law = scores.double().softmax(-1)
    rounds = 100
    wins = sum(draw_row(scores, KeyedNoise(3), Stream.TARGET, i)[0] == 0 for i in range(rounds))
    chance = float(law[0])
    assert abs(wins / rounds - chance) < SIGMAS * math.sqrt(chance * (1 - chance) / rounds)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_draw_without_a_choice_tells(bad: float) -> None:
    assert not math.isfinite(draw_row(torch.tensor([0.0, bad]), KeyedNoise(0), Stream.TARGET, 1)[1])
    nothing = torch.full((5,), -math.inf)
    assert draw_row(nothing, KeyedNoise(0), Stream.TARGET, 1)[1] == -math.inf


def test_masked_tokens_never_win() -> None:
    scores = torch.full((500, 40), -math.inf)
    scores[:, 7] = -1e4
    keys = race_keys(scores, KeyedNoise(0), Stream.TARGET, range(500))
    assert set(keys.argmax(dim=-1).tolist()) == {7}
    assert bool(keys[:, 7].isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_highest_is_the_lowest_id_of_the_highest_key_and_reports_nan(dtype: torch.dtype) -> None:
    assert highest(torch.tensor([1.0, 3.0, 3.0], dtype=dtype)) == (1, 3.0)
    token, best = highest(torch.tensor([1.0, math.nan, 9.0], dtype=dtype))
    assert token == 1 and math.isnan(best)
    assert highest(torch.tensor([1.0, math.inf], dtype=dtype)) == (1, math.inf)


def test_fresh_rows_share_no_noise_even_at_one_position() -> None:
    scores = torch.zeros(4, 30)
    keys = fresh_keys(scores, KeyedNoise(0), Stream.DRAFT, [5, 6, 6, 5], first_index=3)
    assert len({tuple(row) for row in keys.tolist()}) == 4
    for row, position in enumerate([5, 6, 6, 5]):
        alone = race_keys(scores[:1], KeyedNoise(0), Stream.DRAFT, [position], index=3 + row)
        assert torch.equal(keys[row], alone[0])


@pytest.mark.parametrize("values", [1, 2, 5, 1000])
@pytest.mark.parametrize("with_ids", [False, True])
def test_leaders_are_the_highest_keys_and_of_equals_the_lowest_tokens(
    values: int, with_ids: bool
) -> None:
    """However many share a key: here up to all of a thousand."""
    generator = torch.Generator().manual_seed(values)
    keys = torch.randint(values, (3, 1000), generator=generator).float()
    keys[1, 50:] = -math.inf
    ids = torch.randperm(2000, generator=generator)[:1000] if with_ids else None
    tokens = list(range(1000)) if ids is None else ids.tolist()
    law = torch.randn(3, 1000, generator=generator).softmax(-1)
    for count in (1, 4, 60, 1000, 2000):
        found = leaders(keys, count, ids, law)
        for row, chances, each in zip(keys.tolist(), law.tolist(), found, strict=True):
            columns = zip(row, tokens, chances, strict=True)
            ranked = sorted(columns, key=lambda one: (-one[0], one[1]))
            assert each == [one for one in ranked if one[0] > -math.inf][:count]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_led_by_no_number_has_that_leader_alone(bad: float) -> None:
    keys = torch.tensor([[1.0, bad, 2.0], [-math.inf] * 3, [1.0, 3.0, 2.0]])
    found = leaders(keys, 2)
    assert [len(row) for row in found] == [1, 0, 2]
    assert not math.isfinite(found[0][0][0])
    assert [token for _, token, _ in found[2]] == [1, 2]


def test_rows_come_to_the_host_alike_from_any_device() -> None:
    keys = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    columns = (*keys.topk(7), keys.softmax(-1)[:, :7])
    assert _rows_of_a_device(columns) == _rows(*columns)


def test_leaders_have_the_chances_that_a_softmax_of_keys_gives() -> None:
    keys = torch.randn(3, 50, generator=torch.Generator().manual_seed(1)) * 10
    keys[1, 5:], keys[2] = -math.inf, keys[2] + 1e4
    for found, law in zip(leaders(keys, 7), keys.softmax(-1), strict=True):
        tokens = [token for _, token, _ in found]
        chances = torch.tensor([chance for *_, chance in found])
        torch.testing.assert_close(chances, law[tokens])
