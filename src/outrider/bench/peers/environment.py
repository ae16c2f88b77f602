"""The Python that runs a peer: one of an environment of its own, or the one running now."""

from __future__ import annotations

from pathlib import Path

from outrider.bench.peers.kinds import PeerKind
from outrider.environments import find_environment, install_advice
from outrider.errors import OptionError, OutriderError


class PeerError(OutriderError):
    """A peer that is not installed, cannot be loaded, fails or gives answers that are none."""

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(f"{problem}; {advice}" if advice else problem)
        self.problem = problem
        self.advice = advice
        """What would help, such as an install."""


def find_python(kind: PeerKind, python: Path | None = None) -> Path:
    """Return the Python that has a peer: `python` if given, or what `find_environment` finds.

    Raises OptionError for a `python` that is no file, and PeerError, which says how to install it,
    where none has it.
    """
    if python is not None:
        if not python.is_file():
            raise OptionError(f"the Python {str(python)!r} for peer {kind.name} does not exist")
        return python.absolute()
    found = find_environment(kind.name, kind.module)
    if found is None:
        advice = install_advice(kind.name, kind.requirements)
        raise PeerError(f"peer {kind.name} is not installed", advice)
    return found
