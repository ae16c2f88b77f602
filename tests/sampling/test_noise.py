"""Keyed noise: a pure function of its key, and statistically beyond reproach.

Seeds are fixed, so nothing here is flaky; the bounds are set for a false alarm once in 10^9 seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from outrider.errors import NumericsError
from outrider.sampling.noise import KeyedNoise, KeyedRandomness, Stream, exponential

CPU = torch.device("cpu")
SIGMAS = 6.0  # two-sided normal tail of 2e-9


def chi_square_bound(degrees: int) -> float:
    """Return the 1 - 1e-9 quantile (Wilson and Hilferty's approximation)."""
    spread = 2 / (9 * degrees)
    return float(degrees * (1 - spread + SIGMAS * math.sqrt(spread)) ** 3)


def uniforms(noise: KeyedNoise, stream: Stream, num_rows: int, vocab_size: int) -> Tensor:
    """Return the race's variables [R, V] as uniforms, exactly as fine as they were made."""
    return -torch.expm1(-noise.race(stream, range(num_rows), vocab_size, CPU).double())


def chi_square_of_uniforms(values: Tensor, num_bins: int) -> float:
    counts = torch.bincount((values.flatten() * num_bins).long(), minlength=num_bins)
    expected = values.numel() / num_bins
    return float(((counts - expected) ** 2 / expected).sum())


def correlation(one: Tensor, other: Tensor) -> float:
    """Return the correlation of two sets of uniforms, in standard errors."""
    one, other = one.flatten() - 0.5, other.flatten() - 0.5
    return float((one * other).mean() * 12 * math.sqrt(one.numel()))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
@pytest.mark.parametrize("stream", [Stream.TARGET, Stream.RECOVER])
def test_the_race_is_uniform_below_its_logarithm(seed: int, stream: Stream) -> None:
    values = uniforms(KeyedNoise(seed), stream, 40, 5000)
    assert chi_square_of_uniforms(values, 64) < chi_square_bound(63)
    # Finer than any bin above: the lower bits alone.
    assert chi_square_of_uniforms(values * 4096 % 1, 64) < chi_square_bound(63)


def test_the_first_arrival_of_every_row_is_uniform_over_tokens() -> None:
    """PROC-6: uniform logits give every token the same chance."""
    first = KeyedNoise(7).race(Stream.TARGET, range(16_000), 16, CPU).argmin(dim=-1)
    counts = torch.bincount(first, minlength=16).double()
    assert float(((counts - 1000) ** 2 / 1000).sum()) < chi_square_bound(15)


def test_pairs_of_neighbours_fill_the_square() -> None:
    values = uniforms(KeyedNoise(3), Stream.TARGET, 60, 5000)
    neighbours = {
        "tokens": (values[:, :-1], values[:, 1:]),
        "positions": (values[:-1], values[1:]),
        "both": (values[:-1, :-1], values[1:, 1:]),
    }
    for name, (one, other) in neighbours.items():
        cells = (one * 16).long() * 16 + (other * 16).long()
        expected = cells.numel() / 256
        counts = torch.bincount(cells.flatten(), minlength=256)
        assert float(((counts - expected) ** 2 / expected).sum()) < chi_square_bound(255), name


def test_streams_are_independent() -> None:
    """DIST-2: the noise of drafting, accepting and recovering has nothing in common."""
    values = [uniforms(KeyedNoise(11), stream, 40, 5000) for stream in Stream]
    for i, one in enumerate(values):
        for other in values[:i]:
            assert abs(correlation(one, other)) < SIGMAS
    assert abs(correlation(values[0], values[0])) > 100  # the statistic can fail


@pytest.mark.parametrize("step", [1, 2, 2**31, 2**32, 2**62])
def test_seeds_are_independent(step: int) -> None:
    one = uniforms(KeyedNoise(5), Stream.TARGET, 40, 5000)
    other = uniforms(KeyedNoise(5 + step), Stream.TARGET, 40, 5000)
    assert abs(correlation(one, other)) < SIGMAS


def test_draws_at_one_position_are_independent_by_index() -> None:
    noise = KeyedNoise(6)
    one, other = (
        torch.expm1(-noise.race(Stream.RECOVER, range(40), 5000, CPU, index=index).double()) + 1
        for index in (0, 1)
    )
    assert abs(correlation(one, other)) < SIGMAS


def test_rare_tokens_can_win() -> None:
    """A race of a million: the smallest arrivals are as small as they should be, none is 0."""
    smallest = torch.cat(
        [
            KeyedNoise(seed).race(Stream.TARGET, [0], 1_000_000, CPU).amin().unsqueeze(0)
            for seed in range(50)
        ]
    )
    assert float(smallest.min()) > 0
    # Each is Exponential with mean 1e-6; so their mean has standard error 1e-6 / sqrt(50).
    assert abs(float(smallest.mean()) - 1e-6) < SIGMAS * 1e-6 / math.sqrt(50)


def test_every_arrival_is_finite_and_above_zero_even_for_extreme_bits() -> None:
    extreme = exponential(torch.tensor([[0, 1, -1, 2**31 - 1, -(2**31)]], dtype=torch.int32))[0]
    assert bool((extreme > 0).all()) and bool(extreme.isfinite().all())
    assert float(extreme[0]) == pytest.approx(2.0**-33)
    assert float(extreme[1]) == pytest.approx(3 * 2.0**-33)
    assert float(extreme[2]) == pytest.approx(24 * math.log(2))
    assert float(extreme[4]) == pytest.approx(math.log(2))


def test_a_row_does_not_depend_on_the_other_rows_the_vocabulary_or_the_threads() -> None:
    noise = KeyedNoise(9)
    together = noise.race(Stream.TARGET, [3, 4, 5], 49_157, CPU)
    alone = noise.race(Stream.TARGET, [4], 49_157, CPU)
    fewer = noise.race(Stream.TARGET, [4], 1003, CPU)
    torch.set_num_threads(2)
    threaded = noise.race(Stream.TARGET, [3, 4, 5], 49_157, CPU)
    assert torch.equal(together[1:2], alone)
    assert torch.equal(alone[:, :1003], fewer)
    assert torch.equal(together, threaded)


def test_noise_made_in_inference_mode_serves_outside_of_it() -> None:
    with torch.inference_mode():
        inside = KeyedNoise(1).race(Stream.TARGET, [1], 777, CPU)
    outside = KeyedNoise(1).race(Stream.TARGET, [1], 777, CPU)
    assert torch.equal(inside, outside)


def test_uniform_fills_the_open_interval() -> None:
    values = torch.tensor([KeyedNoise(2).uniform(Stream.ACCEPT, p, 3) for p in range(20_000)])
    assert chi_square_of_uniforms(values, 64) < chi_square_bound(63)
    assert float(values.min()) > 0 and float(values.max()) < 1


def test_accept_has_its_probability_and_differs_by_key() -> None:
    accepted = [
        KeyedRandomness(KeyedNoise(4), position).accept(key, 0.3)
        for position in range(5000)
        for key in (0, 1)
    ]
    share = sum(accepted) / len(accepted)
    assert abs(share - 0.3) < SIGMAS * math.sqrt(0.21 / len(accepted))
    both = sum(one and other for one, other in zip(accepted[::2], accepted[1::2], strict=True))
    assert abs(both / 5000 - 0.09) < SIGMAS * math.sqrt(0.09 * 0.91 / 5000)
    assert KeyedRandomness(KeyedNoise(4), 0).accept(0, 1.0)
    assert not KeyedRandomness(KeyedNoise(4), 0).accept(0, 0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draw_follows_weights_of_any_scale(dtype: torch.dtype) -> None:
    """DIST-10: a residual that is tiny everywhere is still a distribution."""
    law = torch.tensor([0.5, 0.3, 0.2, 0.0], dtype=dtype)
    drawn = [
        KeyedRandomness(KeyedNoise(8), position).draw(2, law * 1e-20) for position in range(2000)
    ]
    counts = torch.bincount(torch.tensor(drawn), minlength=4)
    assert counts[3] == 0
    expected = law[:3] * 2000
    assert float(((counts[:3] - expected) ** 2 / expected).sum()) < chi_square_bound(2)


@pytest.mark.parametrize("weights", [[0.0, 0.0], [math.nan, 1.0]])
def test_weights_that_are_no_distribution_are_an_error(weights: list[float]) -> None:
    with pytest.raises(NumericsError, match="position 12"):
        KeyedRandomness(KeyedNoise(0), 12).draw(0, torch.tensor(weights))


def test_the_same_seed_gives_the_same_noise_in_every_version() -> None:
    """Golden values: if this fails, every user's seeds have changed their meaning."""
    noise = KeyedNoise(4242)
    race = noise.race(Stream.TARGET, [0, 1000], 4, CPU)
    golden = torch.tensor(GOLDEN_RACE)
    torch.testing.assert_close(race, golden, rtol=1e-6, atol=0)
    assert [noise.uniform(stream, 7, 1) for stream in Stream] == GOLDEN_UNIFORM


GOLDEN_RACE = [
    [0.40677384, 0.98057449, 0.68932122, 1.2351261],
    [0.16633047, 1.8280334, 2.2053363, 0.22999214],
]
GOLDEN_UNIFORM = [0.8275361271004744, 0.9918961676897373, 0.3805520675760043, 0.5587443932434033]


def test_some_tokens_have_the_variables_that_they_have_among_all() -> None:
    noise, ids = KeyedNoise(3), torch.tensor([9, 2, 29, 2])
    among = noise.race(Stream.TARGET, [4, 7], 30, CPU)
    assert torch.equal(noise.race(Stream.TARGET, [4, 7], 30, CPU, ids=ids), among[:, ids])
