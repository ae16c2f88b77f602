"""A request that cannot fit is refused with the numbers; one that just fits is not."""

from __future__ import annotations

import pytest
import torch

from outrider.errors import LoadError, OptionError
from outrider.targets import memory
from outrider.targets.memory import (
    MemoryPlan,
    bytes_in_words,
    plan_memory,
    require_fits,
    require_room,
)
from support.tiny import VOCAB, tiny_model

KIB, GIB = 2**10, 2**30


def _plan(available: int, sequences: int = 8) -> MemoryPlan:
    return MemoryPlan(
        weights=GIB // 2,
        cache=sequences * 32768 * 12800,
        logits=64 * 49152 * 8,
        available=available,
        sequences=sequences,
        tokens=32768,
        rows=64,
    )


def test_a_plan_that_does_not_fit_is_refused_with_all_numbers() -> None:
    with pytest.raises(OptionError) as caught:
        require_fits(_plan(available=2 * GIB))
    assert str(caught.value) == (
        "the request needs 3.1 GiB of cache (8 sequences of 32,768 tokens at 12.5 KiB) and "
        "24.0 MiB for the logits of 64 rows, beside 512.0 MiB of weights; 2.0 GiB are free"
    )


def test_one_is_not_many() -> None:
    with pytest.raises(OptionError, match=r"\(1 sequence of 32,768 tokens at 12\.5 KiB\)"):
        require_fits(_plan(available=0, sequences=1))


def test_a_plan_fits_up_to_the_last_byte() -> None:
    plan = _plan(available=0)
    require_fits(_plan(available=plan.needed))
    with pytest.raises(OptionError):
        require_fits(_plan(available=plan.needed - 1))


def test_a_plan_is_made_of_the_model_and_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(dtype=torch.bfloat16)
    asked: list[torch.device] = []

    def available(device: torch.device) -> int:
        asked.append(device)
        return 5 * GIB

    monkeypatch.setattr(memory, "available_memory", available)
    plan = plan_memory(model, sequences=3, tokens=100, rows=16, kv_bytes_per_token=40)
    held = [*model.parameters(), *model.buffers()]
    assert plan.weights == sum(tensor.nbytes for tensor in held)
    assert plan.cache == 3 * 100 * 40
    assert plan.logits == 16 * VOCAB * (2 + 4)
    assert plan.needed == plan.cache + plan.logits
    assert plan.available == 5 * GIB
    assert asked == [torch.device("cpu")]


def test_an_impossible_request_is_refused_on_this_machine() -> None:
    """LIMIT-4: before any work, not by running out of memory in the middle."""
    model = tiny_model()
    possible = plan_memory(model, sequences=1, tokens=64, rows=8, kv_bytes_per_token=1024)
    require_fits(possible)
    plan = plan_memory(model, sequences=8, tokens=2**40, rows=8, kv_bytes_per_token=1024)
    with pytest.raises(OptionError, match=r"needs 8,192\.0 TiB of cache"):
        require_fits(plan)


def test_weights_that_do_not_fit_are_refused_with_the_way_out() -> None:
    cpu = torch.device("cpu")
    require_room("it", 100, "int8", cpu, 100)
    with pytest.raises(LoadError) as caught:
        require_room("it", 3 * GIB, "float32", cpu, GIB + GIB // 2)
    assert str(caught.value) == (
        "cannot load it: its weights take 3.0 GiB in float32, and 1.5 GiB are free on cpu; "
        "device='auto' offloads what does not fit"
    )


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0 bytes"),
        (1023, "1,023 bytes"),
        (KIB, "1.0 KiB"),
        (12.5 * KIB, "12.5 KiB"),
        (3 * 2**20, "3.0 MiB"),
        (1536 * 2**20, "1.5 GiB"),
        (2**50, "1,024.0 TiB"),
    ],
)
def test_sizes_are_said_in_words(number: float, words: str) -> None:
    assert bytes_in_words(number) == words
