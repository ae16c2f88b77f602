"""What the worker tells of a request is what its chunks say."""

from __future__ import annotations

from contextlib import closing

from outrider.drafters.ngram import NgramDrafter
from outrider.drafters.suffix import SuffixDrafter
from outrider.engine.engine import Engine
from outrider.engine.events import Emitted
from outrider.errors import NumericsError
from outrider.server.deltas import Delta, Ended, words
from support.runs import make_request
from support.scripted import ScriptedTarget

TEXT = (3, 4, 5, 6, 3, 4, 5, 7)


def test_each_delta_has_the_drafter_of_its_round_with_several_drafters_and_from_the_first() -> None:
    target = ScriptedTarget.saying(TEXT, 64)
    engine = Engine(target, [NgramDrafter(), SuffixDrafter()], max_draft=3)
    with closing(engine.scheduler()) as scheduler:
        scheduler.submit(make_request((*TEXT, *TEXT), max_new_tokens=24))
        told = []
        while scheduler.has_work:
            events = scheduler.step()
            for event, word in zip(events, words(events), strict=True):
                assert isinstance(event, Emitted) and isinstance(word, Delta)
                chunk = event.chunk
                assert (word.drafter, word.drafted) == (chunk.drafter, chunk.drafted)
                assert word.accepted == chunk.accepted
                assert word.progress.proposed == event.state.stats.proposed
                told.append(word)
    assert told[0].drafter is not None and told[0].drafted
    assert told[-1].finish_reason == "length"


def test_the_last_word_of_a_request_that_fails_is_its_error_and_of_a_cancelled_one_none() -> None:
    def broken(context: tuple[int, ...]) -> list[float]:
        return [float("nan")] * 64

    with closing(Engine(ScriptedTarget(broken, 64)).scheduler()) as scheduler:
        scheduler.submit(make_request((1,), max_new_tokens=4))
        (failed,) = words(scheduler.step())
    assert isinstance(failed, Ended) and isinstance(failed.error, NumericsError)
    with closing(Engine(ScriptedTarget.saying(TEXT, 64)).scheduler()) as scheduler:
        ticket = scheduler.submit(make_request((1,), max_new_tokens=4))
        scheduler.cancel(ticket)
        (cancelled,) = words(scheduler.step())
    assert cancelled == Ended(ticket)
