"""The Python that runs a peer: one of an environment of its own, or the one running now."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from pathlib import Path

from outrider.bench.peers.kinds import PeerKind
from outrider.errors import OptionError, OutriderError

VARIABLE = "OUTRIDER_PEERS"
FOLDER = ".peers"


class PeerError(OutriderError):
    """A peer that is not installed, cannot be loaded, fails or gives answers that are none."""

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(f"{problem}; {advice}" if advice else problem)
        self.problem = problem
        self.advice = advice
        """What would help, such as an install."""


def find_python(kind: PeerKind, python: Path | None = None) -> Path:
    """Return the Python that has a peer.

    That is `python` if given, or that of the peer's folder in $OUTRIDER_PEERS or in `.peers`, of
    the current folder or of outrider's own, or the one running now. Raises OptionError for a
    `python` that is no file, and PeerError, which says how to install it, where none has it.
    """
    if python is not None:
        if not python.is_file():
            raise OptionError(f"the Python {str(python)!r} for peer {kind.name} does not exist")
        return python.absolute()
    for folder in _folders():
        found = _executable(folder / kind.name)
        if found.is_file():
            return found
    if importlib.util.find_spec(kind.module) is not None:
        return Path(sys.executable)
    raise PeerError(f"peer {kind.name} is not installed", install_advice(kind))


def install_advice(kind: PeerKind) -> str:
    """Return in a line how to install a peer."""
    folder = Path(FOLDER) / kind.name
    packages = shlex.join(kind.requirements)
    return (
        "install it with: make peers, or: "
        f"python -m venv {folder} && {_executable(folder)} -m pip install {packages}"
    )


def _folders() -> list[Path]:
    """Return the folders that hold environments, those to be preferred first."""
    chosen = os.environ.get(VARIABLE)
    folders = [Path(chosen).expanduser().absolute()] if chosen else []
    project = Path(__file__).resolve().parents[4]
    places = [Path.cwd(), *([project] if (project / "pyproject.toml").is_file() else [])]
    return folders + [place / FOLDER for place in places]


def _executable(environment: Path) -> Path:
    if sys.platform == "win32":
        return environment / "Scripts" / "python.exe"
    return environment / "bin" / "python"
