"""Sound at another rate is the same sound, without what that rate cannot hold."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from outrider.speech.resample import resampled

RATES = [8_000, 11_025, 16_000, 22_050, 44_100, 48_000, 12_347]


def tone(hertz: float, rate: int, seconds: float = 0.5) -> Tensor:
    """Return a tone that swells and fades, so that its ends are silent."""
    time = torch.arange(round(seconds * rate), dtype=torch.float64) / rate
    window = torch.sin(torch.pi * time / seconds) ** 2
    return (torch.sin(2 * torch.pi * hertz * time) * window).float()


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("hertz", [100, 440, 3_000])
def test_a_tone_is_the_same_at_any_rate(rate: int, hertz: float) -> None:
    found, wanted = resampled(tone(hertz, rate), rate, 16_000), tone(hertz, 16_000)
    assert abs(len(found) - len(wanted)) <= 1 and found.dtype == torch.float32
    length = min(len(found), len(wanted))
    torch.testing.assert_close(found[:length], wanted[:length], atol=2e-4, rtol=0)


@pytest.mark.parametrize("hertz", [9_000, 15_000, 20_000])
def test_what_the_lower_rate_cannot_hold_is_not_heard_as_something_else(hertz: float) -> None:
    assert resampled(tone(hertz, 48_000), 48_000, 16_000).abs().max() < 1e-4


def test_there_are_as_many_samples_as_the_time_takes() -> None:
    for count, rate, wanted in ((1, 44_100, 1), (3, 48_000, 1), (4, 48_000, 2), (5, 8_000, 10)):
        assert len(resampled(torch.ones(count), rate, 16_000)) == wanted


def test_sound_at_the_right_rate_is_left_alone() -> None:
    sound = tone(440, 16_000)
    assert resampled(sound, 16_000, 16_000) is sound


def test_the_end_of_a_sound_is_not_heard_at_its_beginning() -> None:
    """A spectrum is that of a sound without end: what stands at one end would ring at the other."""
    sound = torch.zeros(4_000)
    sound[-1] = 1.0
    assert resampled(sound, 8_000, 16_000)[:4_000].abs().max() < 1e-3
