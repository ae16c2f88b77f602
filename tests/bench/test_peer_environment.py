"""Where the Python of a peer is looked for, and what is said if there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from outrider.bench.peers import PEERS
from outrider.bench.peers.environment import PeerError, find_python
from outrider.bench.peers.kinds import PeerKind, find_kind
from outrider.errors import OptionError

ROOT = Path(__file__).parents[2]
ABSENT = PeerKind("absent", "absent", "no_such_module", ("absent-package==1.0",), ())
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="environments look different there")


def environment(folder: Path) -> Path:
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    return python


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OUTRIDER_PEERS", raising=False)


def test_a_peer_that_is_nowhere_says_how_it_is_installed() -> None:
    with pytest.raises(PeerError) as caught:
        find_python(ABSENT)
    assert caught.value.problem == "peer absent is not installed"
    assert caught.value.advice == (
        "install it with: make peers, or: python -m venv .peers/absent && "
        ".peers/absent/bin/python -m pip install absent-package==1.0"
    )
    assert str(caught.value) == f"{caught.value.problem}; {caught.value.advice}"


def test_the_variable_comes_before_the_folder_and_that_before_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = PeerKind("some", "some", "json", (), ())
    assert find_python(kind) == Path(sys.executable)
    here = environment(tmp_path / ".peers" / "some")
    assert find_python(kind) == here
    chosen = environment(tmp_path / "chosen" / "some")
    monkeypatch.setenv("OUTRIDER_PEERS", "chosen")
    assert find_python(kind) == chosen


def test_a_python_that_is_named_is_taken_or_refused(tmp_path: Path) -> None:
    named = environment(tmp_path / "mine")
    environment(tmp_path / ".peers" / "absent")
    assert find_python(ABSENT, Path("mine/bin/python")) == named
    with pytest.raises(OptionError, match="the Python 'gone/python' for peer absent does not"):
        find_python(ABSENT, Path("gone/python"))


def test_transformers_runs_with_this_python() -> None:
    assert find_python(find_kind("transformers"), Path(sys.executable)) == Path(sys.executable)


@pytest.mark.parametrize("name", [name for name in PEERS if name != "transformers"])
def test_what_is_advised_is_what_make_peers_installs(name: str) -> None:
    pinned = (ROOT / "requirements-peers" / f"{name}.txt").read_text().split("\n")
    for requirement in find_kind(name).requirements:
        assert requirement in pinned
    assert name in (ROOT / "Makefile").read_text()
