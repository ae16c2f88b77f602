"""A child process is told what we are told, and ends when it has to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from outrider.errors import LoadError
from outrider.scale.child import run_child

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="vLLM does not run there")

# Stands for a server: it starts a worker of its own, tells that both are there, and drains at
# SIGTERM, if it is told how.
SERVER = """
import os, signal, subprocess, sys, time
seconds, ready = float(sys.argv[1]), sys.argv[2]
def drain(sig, frame):
    time.sleep(seconds)
    print("drained", signal.Signals(sig).name, flush=True)
    worker.kill()
    sys.exit(7)
for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(sig, drain)
ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
worker = subprocess.Popen([sys.executable, "-c", ignore])
with open(ready + ".new", "w") as file:
    file.write(f"{os.getpid()} {worker.pid}")
os.rename(ready + ".new", ready)
while True:
    time.sleep(1)
"""
PARENT = """
import os, sys
from outrider.scale.child import run_child
command = [sys.executable, "-c", sys.argv[1], sys.argv[2], sys.argv[3]]
patience = float(sys.argv[4])
note = lambda text: print(text, file=sys.stderr)
sys.exit(run_child(command, os.environ, patience, grace_s=0, on_note=note))
"""


class Parent:
    """A process that runs a server as its child."""

    def __init__(self, folder: Path, *, drains_s: float, patience_s: float = 30.0) -> None:
        ready = folder / "ready"
        self.process = subprocess.Popen(
            [sys.executable, "-c", PARENT, SERVER, str(drains_s), str(ready), str(patience_s)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 30
        while not ready.exists():
            assert self.process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        self.children = [int(pid) for pid in ready.read_text().split()]

    def end(self, *signals: signal.Signals) -> tuple[int, str, str]:
        for sig in signals:
            self.process.send_signal(sig)
            time.sleep(0.2)
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err

    @property
    def left(self) -> list[int]:
        """What is still there some time after it was killed: a busy machine takes a moment."""
        deadline = time.monotonic() + 10
        while (found := [pid for pid in self.children if _is_alive(pid)]) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.01)
        return found


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return not Path("/proc/self").exists()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_and_the_exit_code_comes_back(
    tmp_path: Path, sig: signal.Signals
) -> None:
    parent = Parent(tmp_path, drains_s=0.5)
    code, out, err = parent.end(sig)
    assert (code, out, err) == (7, f"drained {sig.name}\n", "")
    assert parent.left == []


def test_after_ctrl_c_it_is_drained_and_said_to_be_interrupted(tmp_path: Path) -> None:
    parent = Parent(tmp_path, drains_s=0.5)
    code, out, err = parent.end(signal.SIGINT)
    assert out == "drained SIGINT\n"
    assert code != 0 and "KeyboardInterrupt" in err
    assert parent.left == []


def test_a_second_signal_ends_all_of_it_at_once(tmp_path: Path) -> None:
    parent = Parent(tmp_path, drains_s=60)
    code, out, _ = parent.end(signal.SIGTERM, signal.SIGTERM)
    assert (code, out) == (128 + signal.SIGKILL, "")
    assert parent.left == []


def test_a_server_that_does_not_end_is_ended(tmp_path: Path) -> None:
    parent = Parent(tmp_path, drains_s=60, patience_s=0.5)
    code, _, err = parent.end(signal.SIGTERM)
    assert code == 128 + signal.SIGKILL
    assert err == "vLLM has not ended within 0.5 s; ending it\n"
    assert parent.left == []


def test_a_worker_of_a_server_that_died_is_not_left_behind(tmp_path: Path) -> None:
    parent = Parent(tmp_path, drains_s=60)
    os.kill(parent.children[0], signal.SIGKILL)
    assert parent.end()[0] == 128 + signal.SIGKILL
    assert parent.left == []


def test_a_signal_that_comes_before_the_server_is_passed_on_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = subprocess.Popen

    def late(*arguments: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return start(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", late)
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    assert run_child(command, os.environ, 40.0) == 128 + signal.SIGTERM


@pytest.mark.parametrize("code", [0, 3])
def test_a_server_that_ends_by_itself_gives_its_exit_code(code: int) -> None:
    before = signal.getsignal(signal.SIGTERM)
    script = f"raise SystemExit({code})"
    assert run_child([sys.executable, "-c", script], os.environ, 1.0) == code
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_server_has_the_variables_it_is_given_and_no_others() -> None:
    script = textwrap.dedent("""
        import os
        raise SystemExit(0 if os.environ["MINE"] == "1" and "HOME" not in os.environ else 1)
    """)
    assert run_child([sys.executable, "-c", script], {"MINE": "1"}, 1.0) == 0


def test_a_command_that_is_not_there_is_one_line() -> None:
    with pytest.raises(LoadError, match=r"^cannot start /no/such/python: No such file"):
        run_child(["/no/such/python"], {}, 1.0)
