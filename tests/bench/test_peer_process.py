"""The process of a peer: what it does wrong is one error, and it costs nobody any time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from outrider.bench.peers.environment import PeerError
from outrider.bench.peers.process import PeerProcess

FAKE = Path(__file__).with_name("fake_peer.py")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there, processes are not stopped")


@contextmanager
def fake(how: str, **options: object) -> Iterator[PeerProcess]:
    process = PeerProcess("fake", [sys.executable, str(FAKE), how], **options)  # type: ignore[arg-type]
    try:
        yield process
    finally:
        process.close()


def status(pid: int) -> str:
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return "gone"


def reaches(pid: int, *wanted: str) -> bool:
    """Wait for a process to be in one of these states, for as long as a busy machine may take."""
    for _ in range(3000):
        if status(pid) in wanted:
            return True
        time.sleep(0.01)
    return False


def test_requests_are_answered_in_turn() -> None:
    with fake("well") as process:
        assert process.ask({"do": "load"}, 60)["memory"] == 1000
        reply = process.ask({"do": "decode", "prompts": [[4]], "max_new_tokens": 2}, 60)
        assert reply["answers"] == [[5, 6]]
        assert process.is_alive


WRONG = {
    "dies": "fake ended with exit code 3: Segmentation something$",
    "garbage": "fake replied with what is no JSON object: 'not json'$",
    "a list": r"fake replied with what is no JSON object: '\[1, 2\]'$",
}


@pytest.mark.parametrize("how", WRONG)
def test_what_goes_wrong_is_one_line_and_the_end_of_the_process(how: str) -> None:
    with fake(how) as process:
        with pytest.raises(PeerError, match=WRONG[how]) as caught:
            process.ask({"do": "load"}, 60)
        assert "\n" not in str(caught.value)
        assert not process.is_alive
        with pytest.raises(PeerError, match="fake has ended"):
            process.ask({"do": "load"}, 60)


def test_a_process_that_gives_no_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.bench.peers.process._GRACE_S", 0.1)
    with fake("is silent") as process:
        pid = process.pid
        with pytest.raises(PeerError, match=r"fake gave no answer in 0\.2 s"):
            process.ask({"do": "load"}, 0.2)
        assert not process.is_alive
        assert reaches(pid, "gone")


def test_an_error_that_is_reported_leaves_the_process_as_it_is() -> None:
    with fake("fails to decode") as process:
        process.ask({"do": "load"}, 60)
        with pytest.raises(PeerError, match=r"^fake failed: ValueError: too long a prompt$"):
            process.ask({"do": "decode", "max_new_tokens": 1}, 60)
        assert process.is_alive


def test_a_program_that_is_not_there_is_one_error() -> None:
    with pytest.raises(PeerError, match="fake cannot be started: No such file"):
        PeerProcess("fake", ["/nowhere/python"])


def test_between_its_turns_a_process_is_stopped() -> None:
    with fake("pid") as process:
        pid = process.ask({}, 60)["pid"]
        assert reaches(pid, psutil.STATUS_STOPPED)
        assert process.ask({}, 60)["pid"] == pid
        assert reaches(pid, psutil.STATUS_STOPPED)
    assert reaches(pid, "gone")


def test_closing_twice_is_closing_once() -> None:
    with fake("well") as process:
        process.ask({"do": "load"}, 60)
        process.close()
        process.close()


def test_a_stopped_process_does_not_outlive_a_killed_outrider() -> None:
    program = (
        "import sys, time; from outrider.bench.peers.process import PeerProcess\n"
        f"p = PeerProcess('fake', [sys.executable, {str(FAKE)!r}, 'pid'])\n"
        "print(p.ask({}, 60)['pid'], flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        try:
            pid = int(parent.stdout.readline())
            assert reaches(pid, psutil.STATUS_STOPPED)
        finally:
            parent.kill()
    try:
        # Whoever adopts it may be slow to bury it.
        assert reaches(pid, "gone", psutil.STATUS_ZOMBIE)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_what_it_prints_is_kept_where_wanted(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "fake.log"
    with fake("well", log=log) as process:
        process.ask({"do": "load"}, 60)
    assert log.read_text() == "loading something\n"


def test_a_process_has_what_is_added_to_the_environment_and_none_of_our_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("KEPT", "yes")
    with fake("environment", environment={"OMP_NUM_THREADS": "3"}) as process:
        found = process.ask({}, 60)
    assert (found["OMP_NUM_THREADS"], found["KEPT"]) == ("3", "yes")
    assert "PYTHONPATH" not in found
