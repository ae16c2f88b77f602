"""Drawing by a race: the law, and how often target and drafter meet when they share its noise."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from outrider.sampling.draw import highest, race_keys
from outrider.sampling.noise import KeyedNoise, Stream

NUM_ROUNDS = 20_000
SIGMAS = 6.0  # two-sided normal tail of 2e-9
CASES = {
    "A": ([1 / 3, 2 / 3], [2 / 3, 1 / 3], 2 / 3, 4 / 9),
    "B": ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], 41 / 65, 29 / 100),
}


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
    law = CASES[case][0]
    drawn = draws(law, stream)
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
    assert_share(draws(p, Stream.TARGET) == draws(q, Stream.TARGET), expected)


@pytest.mark.parametrize("case", CASES)
def test_streams_and_seeds_apart_meet_no_more_often_than_chance(case: str) -> None:
    """DIST-2: the negative control, which shared noise would fail by far."""
    p, q, shared, independent = CASES[case]
    assert_share(draws(p, Stream.TARGET) == draws(q, Stream.DRAFT), independent)
    assert_share(draws(p, Stream.TARGET) == draws(q, Stream.TARGET, seed=2), independent)
    with pytest.raises(AssertionError):
        assert_share(draws(p, Stream.TARGET) == draws(q, Stream.TARGET), independent)
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
