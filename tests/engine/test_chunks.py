"""Chunks know whose draft they come from, whoever drafts and whatever is known of costs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from outrider.engine.engine import Engine
from outrider.engine.events import Emitted
from outrider.engine.request import Request
from outrider.engine.rounds import Round, Rounds
from outrider.types import Chunk, DraftTree
from support.runs import make_request
from support.scripted import ScriptedDrafter, ScriptedTarget

TEXT = tuple(range(1, 60))
WRONG = 63


class Named(ScriptedDrafter):
    """Knows the text where a rule says so, and is wrong from its `right`-th token on."""

    def __init__(
        self, name: str, knows: Callable[[int], bool], right: int, *, lookup: bool
    ) -> None:
        super().__init__(self._propose_at)
        self.name, self.is_lookup = name, lookup
        self._knows, self._right = knows, right

    def _propose_at(self, context: tuple[int, ...], budget: int) -> DraftTree:
        at = len(context) - 1
        if not self._knows(at):
            return DraftTree()
        known = [token if i < self._right else WRONG for i, token in enumerate(TEXT[at:])]
        return DraftTree.chain(known[: min(budget, 5)])


def engine(max_draft: Any, *, lookup: bool) -> Engine:
    drafters = [
        Named("odd", lambda at: at % 2 == 1, 2, lookup=lookup),
        Named("thirds", lambda at: at % 3 == 0, 3, lookup=lookup),
    ]
    return Engine(ScriptedTarget.saying(TEXT, 64), drafters, max_draft=max_draft)


def watch(monkeypatch: pytest.MonkeyPatch) -> list[Round]:
    """Return the rounds that are run from now on."""
    rounds: list[Round] = []
    run = Rounds.run

    def noting(self: Rounds, *args: Any) -> Round:
        rounds.append(run(self, *args))
        return rounds[-1]

    monkeypatch.setattr(Rounds, "run", noting)
    return rounds


def chunks_of(subject: Engine, asked: Request) -> list[Chunk]:
    return [chunk for _, chunk, _ in subject.run([asked])]


@pytest.mark.parametrize("lookup", [True, False])
@pytest.mark.parametrize("max_draft", [4, "auto"])
def test_a_chunk_names_the_drafter_of_the_recorded_round(
    max_draft: Any, lookup: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, rounds = engine(max_draft, lookup=lookup), watch(monkeypatch)
    drafters: dict[Any, Any] = {drafter.name: drafter for drafter in subject.drafters}
    names = set()
    for _ in range(3):
        rounds.clear()
        chunks = chunks_of(subject, make_request((0,), max_new_tokens=len(TEXT)))
        context = [0]
        for chunk, done in zip(chunks, rounds, strict=True):
            (turn,) = done.turns
            tree = turn.tree.tokens
            assert chunk.drafted == len(tree)
            assert (chunk.drafter is None) == (not tree)
            if chunk.drafter is not None:
                guess = drafters[chunk.drafter]._propose_at(tuple(context), 5)
                assert tree == guess.tokens[: len(tree)]
            ids = [token.id for token in chunk.tokens]
            assert ids[: chunk.accepted] == list(tree[: chunk.accepted])
            context += ids
            names.add(chunk.drafter)
    assert {"odd", "thirds"} <= names or (max_draft == "auto" and not lookup)


def test_what_is_drafted_before_any_round_was_priced_is_told_apart_too() -> None:
    chunks = chunks_of(engine(4, lookup=True), make_request((0,), max_new_tokens=8))
    assert (chunks[0].drafter, chunks[0].drafted, chunks[0].accepted) == ("thirds", 4, 3)


@pytest.mark.parametrize("max_draft", [4, "auto"])
def test_the_chunks_of_a_request_add_up_to_its_counters(max_draft: Any) -> None:
    with closing(engine(max_draft, lookup=True).scheduler()) as scheduler:
        for length in (30, 17, 41):
            scheduler.submit(make_request((0,), max_new_tokens=length))
        drafted: dict[Any, int] = {}
        accepted: dict[Any, int] = {}
        states: dict[Any, Any] = {}
        while scheduler.has_work:
            for event in scheduler.step():
                assert isinstance(event, Emitted)
                states[event.ticket] = event.state
                for counts, number in (
                    (drafted, event.chunk.drafted),
                    (accepted, event.chunk.accepted),
                ):
                    counts[event.ticket] = counts.get(event.ticket, 0) + number
        for ticket, state in states.items():
            assert (drafted[ticket], accepted[ticket]) == (
                state.stats.proposed,
                state.stats.accepted,
            )


def test_plain_decoding_has_chunks_of_nobody() -> None:
    chunks = chunks_of(
        Engine(ScriptedTarget.saying(TEXT, 64)), make_request((0,), max_new_tokens=4)
    )
    assert {(chunk.drafter, chunk.drafted, chunk.accepted) for chunk in chunks} == {(None, 0, 0)}
