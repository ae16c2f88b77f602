"""What adapters share: they run without outrider, and only their replies are on stdout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from outrider.bench.peers.adapters.protocol import (
    cut_at_end,
    describe,
    peak_memory,
    reset_peak_memory,
)
from outrider.bench.peers.environment import PeerError
from outrider.bench.peers.process import ADAPTERS, PeerProcess

ECHO = '''
"""A peer that prints a lot."""
import os, sys
from .protocol import Answers, Job, Peer, Settings, serve

class Echo(Peer):
    def __init__(self, settings):
        if settings.mode == "broken":
            raise RuntimeError("no weights\\nat all")
        self.settings = settings
        print("chatter")
        os.write(1, b"more chatter\\n")

    def versions(self):
        return {"outrider": str("outrider" in sys.modules), "torch": str("torch" in sys.modules)}

    def decode(self, job):
        os.system("echo chatter of a child")
        if job.temperature > 1:
            raise ValueError("too hot")
        return Answers([list(prompt) for prompt in job.prompts], 0.25)

def main():
    serve(Echo)
'''
LOAD = {
    "do": "load",
    "model": "m",
    "mode": "none",
    "weights": "float32",
    "threads": 1,
    "context": 9,
    "batch": 1,
    "eos_token_ids": [2],
}
JOB = {"do": "decode", "prompts": [[3, 4]], "max_new_tokens": 1, "seed": 0}


@pytest.fixture
def echo(tmp_path: Path) -> list[str]:
    """Return the command of an adapter that needs no peer, from a copy of the folder."""
    for name in ("__init__.py", "protocol.py", "run.py"):
        (tmp_path / name).write_text((ADAPTERS / name).read_text())
    (tmp_path / "json_echo.py").write_text(ECHO)
    (tmp_path / "json.py").write_text("raise ImportError('a file of the folder hides a package')")
    return [sys.executable, str(tmp_path / "run.py"), "json_echo"]


def test_an_adapter_serves_without_outrider_and_its_chatter_is_no_reply(
    echo: list[str], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    process = PeerProcess("echo", echo, log=log)
    try:
        loaded = process.ask(LOAD, 60)
        assert loaded["versions"] == {"outrider": "False", "torch": "False"}
        assert loaded["memory"] > 1e6
        found = process.ask(JOB | {"temperature": 0.0}, 60)
        assert (found["answers"], found["seconds"], found["counts"]) == ([[3, 4]], 0.25, None)
    finally:
        process.close()
    said = log.read_text().split("\n")
    assert {"chatter", "more chatter", "chatter of a child"} <= set(said)


def test_what_a_peer_raises_is_told_in_a_line_and_serving_goes_on(echo: list[str]) -> None:
    process = PeerProcess("echo", echo)
    try:
        with pytest.raises(PeerError, match=r"^echo failed: RuntimeError: no weights at all$"):
            process.ask(LOAD | {"mode": "broken"}, 60)
        process.ask(LOAD, 60)
        with pytest.raises(PeerError, match=r"^echo failed: ValueError: too hot$"):
            process.ask(JOB | {"temperature": 2.0}, 60)
        assert process.ask(JOB | {"temperature": 0.0}, 60)["answers"] == [[3, 4]]
    finally:
        process.close()


def test_an_adapter_ends_with_its_input(echo: list[str]) -> None:
    ended = subprocess.run(echo, input=b"", capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, b"")


def test_an_answer_ends_with_the_first_end_of_text() -> None:
    assert cut_at_end([5, 6, 2, 7, 2], (2, 3)) == [5, 6, 2]
    assert cut_at_end([3, 2], (2, 3)) == [3]
    assert cut_at_end([5, 6], (2,)) == [5, 6]
    assert cut_at_end([5, 6], ()) == [5, 6]


def test_errors_without_words_have_a_name() -> None:
    assert describe(KeyError()) == "KeyError"
    assert describe(ValueError("a\n  b")) == "ValueError: a b"


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux alone can")
def test_what_was_held_before_is_no_part_of_the_peak() -> None:
    ballast = bytearray(2**28)
    held = peak_memory()
    del ballast
    reset_peak_memory()
    found = peak_memory()
    assert held is not None and found is not None
    assert found < held - 2**27


def test_memory_is_that_of_this_process() -> None:
    found = peak_memory()
    assert found is not None and 1e7 < found < 1e12
