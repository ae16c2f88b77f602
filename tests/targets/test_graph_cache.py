"""Compiled passes on disk: made by one process at a time, and kept only if they load."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from outrider.errors import CompilerError
from outrider.targets import graph
from outrider.targets.diskcache import intact_entry, one_at_a_time
from outrider.targets.graph import Pass, compiled_pass
from support.tiny import shared_model

NAME = "pass-of-a-test"


@pytest.fixture(autouse=True)
def nothing_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    monkeypatch.setattr(graph, "_require_compilable", lambda _: None)
    monkeypatch.setattr(graph, "_entry_name", lambda *_: NAME)
    monkeypatch.setattr(graph, "_compile", lambda *given: (given[-1] / "pass").write_text("code"))
    monkeypatch.setattr(graph, "_load", lambda *_: Pass(lambda _: [], (), takes_states=False))


def make() -> Pass:
    nothing: Any = None  # no cache is looked at, as nothing is compiled
    return compiled_pass(shared_model(), {}, nothing)


def test_a_pass_that_was_made_is_kept() -> None:
    make()
    assert intact_entry(NAME) is not None


def test_a_pass_that_does_not_load_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Pass:
        raise CompilerError("it does not load")

    monkeypatch.setattr(graph, "_load", refuse)
    with pytest.raises(CompilerError, match="does not load"):
        make()
    assert intact_entry(NAME) is None


def test_a_kept_pass_that_loads_no_more_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    make()
    made: list[str] = []
    loads = iter([CompilerError("spoilt"), None, None])

    def load(*_: object) -> Pass:
        if (error := next(loads)) is not None:
            raise error
        return Pass(lambda _: [], (), takes_states=False)

    def compile(*given: Any) -> None:
        made.append("again")
        (given[-1] / "pass").write_text("code")

    monkeypatch.setattr(graph, "_load", load)
    monkeypatch.setattr(graph, "_compile", compile)
    make()
    assert made == ["again"]
    assert intact_entry(NAME) is not None


def test_no_other_process_compiles_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    is_waiting = threading.Event()

    def other() -> None:
        with one_at_a_time("compiling", on_waiting=is_waiting.set):
            order.append("other")

    thread = threading.Thread(target=other)

    def compile(*given: Any) -> None:
        thread.start()
        assert is_waiting.wait(60)
        (given[-1] / "pass").write_text("code")
        order.append("own")

    monkeypatch.setattr(graph, "_compile", compile)
    make()
    thread.join()
    assert order == ["own", "other"]
