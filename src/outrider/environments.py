"""Python environments of other programs: where one is looked for, and how it is made."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

VARIABLE = "OUTRIDER_PEERS"
FOLDER = ".peers"


def find_environment(name: str, module: str) -> Path | None:
    """Return the Python of a program, None where there is none.

    That is the one in the program's folder in $OUTRIDER_PEERS or in `.peers`, of the current folder
    or of outrider's own, or the one running now if it can import `module`.
    """
    for folder in _folders():
        found = _executable(folder / name)
        if found.is_file():
            return found
    return Path(sys.executable) if importlib.util.find_spec(module) is not None else None


def install_advice(name: str, requirements: Sequence[str]) -> str:
    """Return in a line how to install a program in an environment of its own."""
    folder = Path(FOLDER) / name
    pip = f"{_executable(folder)} -m pip install {shlex.join(requirements)}"
    return f"install it with: make peers, or: python -m venv {folder} && {pip}"


def foreign_variables(added: Mapping[str, str]) -> dict[str, str]:
    """Return this process's variables without what would lead into its packages, and `added`."""
    ours = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    return ours | {"PYTHONUNBUFFERED": "1", "PYTHONNOUSERSITE": "1"} | dict(added)


def _folders() -> list[Path]:
    """Return the folders that hold environments, those to be preferred first."""
    chosen = os.environ.get(VARIABLE)
    folders = [Path(chosen).expanduser().absolute()] if chosen else []
    project = Path(__file__).resolve().parents[2]
    places = [Path.cwd(), *([project] if (project / "pyproject.toml").is_file() else [])]
    return folders + [place / FOLDER for place in places]


def _executable(environment: Path) -> Path:
    if sys.platform == "win32":
        return environment / "Scripts" / "python.exe"
    return environment / "bin" / "python"
