"""How the rows of a round are shared out, and that pieces of a prompt make the whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scheduling import Log, Telltale, run_all, telling_target, told
from torch import Tensor

from outrider.engine.engine import Engine
from outrider.engine.events import Emitted
from outrider.engine.prefill import LEAST_ROWS, share_rows
from outrider.targets.base import NORMED
from outrider.targets.transformers import TransformersTarget
from outrider.types import TokenIds
from support.runs import assert_same, collect, decode, draft_model, make_request, shared_target
from support.scripted import ScriptedDrafter, silent
from support.tiny import random_ids, tiny_model


@given(st.lists(st.integers(1, 900), max_size=9), st.integers(LEAST_ROWS, 400))
def test_who_decodes_has_a_row_and_prompts_share_what_there_is(
    unread: list[int], most: int
) -> None:
    shares = share_rows(unread, most)
    assert len(shares) == len(unread)
    reading = [(share, rows) for share, rows in zip(shares, unread, strict=True) if rows > 1]
    assert all(share == 1 for share, rows in zip(shares, unread, strict=True) if rows == 1)
    assert sum(share for share, _ in reading) <= most
    if reading:
        first, needed = reading[0]
        assert first == needed or first >= min(most // 2, needed)
        # Nothing is left over while someone could have used it.
        left = most - sum(share for share, _ in reading)
        assert left < LEAST_ROWS or all(share == rows for share, rows in reading)
    for share, rows in reading:
        assert share in (0, rows) or share >= min(LEAST_ROWS, most)


def test_without_a_limit_all_is_read_at_once() -> None:
    assert share_rows([700, 1, 30], None) == [700, 1, 30]


@pytest.mark.parametrize(
    ("unread", "shares"),
    [
        ([500], [100]),
        ([1, 500, 1], [1, 100, 1]),
        ([500, 30], [70, 30]),  # the short one gets all it needs
        ([500, 600], [100, 0]),
        ([600, 500], [50, 50]),
        ([500, 90, 20], [50, 30, 20]),
        ([40, 90, 20], [40, 40, 20]),
        ([500, 45, 40], [60, 0, 40]),  # too small a piece is none
        ([20, 30], [20, 30]),
    ],
)
def test_the_first_has_half_for_sure_and_shorter_ones_do_not_wait_for_it(
    unread: list[int], shares: list[int]
) -> None:
    assert share_rows(unread, 100) == shares


def test_a_long_prompt_stops_nobody_from_decoding() -> None:
    """While 400 tokens are read 32 at a time, the others emit a token in every round."""
    target = telling_target()
    scheduler = Engine(target).scheduler(prefill_rows=32)
    log = Log()
    short = [scheduler.submit(make_request((who,), max_new_tokens=30)) for who in (5, 6)]
    log.step(scheduler)
    long = scheduler.submit(make_request(random_ids(400), max_new_tokens=3))
    target.passes.clear()
    while long not in log.order:
        events = log.step(scheduler)
        assert {event.ticket for event in events} >= set(short) - set(log.results)
    # 31 rows of each piece are kept: the last is read again.
    assert len(log.steps) - 1 == 1 + -(-(400 - 32) // 31)
    assert max(len(part.pending) for rows in target.passes for part in rows) == 32
    log.finish(scheduler)
    assert log.results[long].token_ids == told(random_ids(400), 3)
    for ticket, who in zip(short, (5, 6), strict=True):
        assert log.results[ticket].token_ids == told((who,), 30)


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    scheduler = Engine(telling_target()).scheduler(prefill_rows=64)
    long = scheduler.submit(make_request(random_ids(600), max_new_tokens=2))
    short = scheduler.submit(make_request(random_ids(20, 1), max_new_tokens=2))
    log = Log()
    log.step(scheduler)
    assert log.order == [short]
    assert log.finish(scheduler).order == [short, long]


@pytest.mark.parametrize("rows", [16, 40, 100])
def test_a_prompt_read_in_pieces_says_what_it_says_read_whole(rows: int) -> None:
    wanted = [
        make_request(random_ids(150, 1), max_new_tokens=9, logprobs=1),
        make_request(random_ids(60, 2), max_new_tokens=9, temperature=1.0, seed=4),
        make_request(random_ids(3, 3), max_new_tokens=20),
    ]
    for drafter in (None, draft_model("noisy")):
        engine = Engine(shared_target(), drafter, max_draft=4)
        found = run_all(engine.scheduler(prefill_rows=rows), wanted)
        for request, result in zip(wanted, found, strict=True):
            assert_same(result, decode(shared_target(), request))
            assert result.stats.prompt_tokens == len(request.prompt_ids)


@pytest.mark.parametrize("rows", [16, 40])
def test_no_row_of_a_prompt_in_pieces_was_one_to_decode_from(rows: int) -> None:
    """A target may give such a row other bits, and a prompt read whole has only one."""
    request = make_request(random_ids(120), max_new_tokens=3, logprobs=0)
    (found,) = run_all(Engine(Telltale()).scheduler(prefill_rows=rows), [request])
    assert found.logprobs == decode(Telltale(), request).logprobs


class Reading(ScriptedDrafter):
    """Keeps the features it is told of each request, by the first token of the prompt."""

    def __init__(self, *layers: int) -> None:
        super().__init__(silent()._propose)
        self.feature_layers = layers
        self.told: dict[int, list[Tensor]] = {}

    def observe(
        self,
        states: Sequence[list[int]],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor] = (),
    ) -> None:
        super().observe(states, committed, features)
        for state, rows in zip(states, features, strict=True):
            self.told.setdefault(state[0], []).append(rows)


def test_a_drafter_is_told_the_features_of_all_pieces_once_the_prompt_is_read() -> None:
    target = TransformersTarget(tiny_model())
    wanted = [make_request((who, *random_ids(90, who)), max_new_tokens=4) for who in (1, 2)]
    whole, pieces = Reading(1, NORMED), Reading(1, NORMED)
    collect(Engine(target, whole, max_draft=3), wanted)
    run_all(Engine(target, pieces, max_draft=3).scheduler(prefill_rows=24), wanted)
    assert [len(rows) for rows in pieces.told[1]] == [91, 1, 1, 1]
    for who in (1, 2):
        assert torch.allclose(torch.cat(pieces.told[who]), torch.cat(whole.told[who]))


def test_the_pieces_of_a_prompt_count_as_its_reading() -> None:
    scheduler = Engine(shared_target()).scheduler(prefill_rows=16)
    (result,) = run_all(scheduler, [make_request(random_ids(100), max_new_tokens=2)])
    stats = result.stats
    assert (stats.rounds, stats.tokens) == (2, 2)
    assert stats.prefill_s > stats.score_s > 0


def test_a_request_may_leave_in_the_middle_of_its_prompt() -> None:
    target = telling_target()
    scheduler = Engine(target).scheduler(prefill_rows=16, max_prefixes=2)
    ticket = scheduler.submit(make_request(random_ids(200), max_new_tokens=4))
    log = Log()
    for _ in range(3):
        assert log.step(scheduler) == []
    scheduler.cancel(ticket)
    log.step(scheduler)
    assert log.cancelled == [ticket]
    # What it has read is there for the next.
    (found,) = run_all(scheduler, [make_request(random_ids(200), max_new_tokens=4)])
    assert found.stats.reused_tokens == 45
    assert found.token_ids == told(random_ids(200), 4)


@pytest.mark.parametrize("options", [{"prefill_rows": 64}, {"prefill_rows": None}])
def test_each_long_prompt_has_a_pass_to_itself_and_short_ones_share(
    options: dict[str, Any],
) -> None:
    target = telling_target()
    prompts = [random_ids(length, length) for length in (40, 3, 9)]
    run_all(
        Engine(target).scheduler(**options),
        [make_request(prompt, max_new_tokens=2) for prompt in prompts],
    )
    widths = [[len(part.pending) for part in rows] for rows in target.passes]
    assert widths == [[40], [3, 9], [1, 1, 1]]


def test_a_chunk_is_never_empty_and_none_comes_before_the_prompt_is_read() -> None:
    scheduler = Engine(telling_target()).scheduler(prefill_rows=16)
    ticket = scheduler.submit(make_request(random_ids(50), max_new_tokens=1))
    log = Log().finish(scheduler)
    events = [event for step in log.steps for event in step]
    assert [type(event) for event in events] == [Emitted]
    assert len(log.steps) == 4
    assert log.results[ticket].finish_reason == "length"
    assert log.results[ticket].token_ids == told(random_ids(50), 1)
