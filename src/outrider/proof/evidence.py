"""What all evidence says of itself: what was run, on which machine, when, and how it ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from outrider.machine import Machine
from outrider.profile import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(ABC):
    """What was found out about a target and its drafters on a machine, and the verdict."""

    subject: Subject
    machine: Machine
    drafters: tuple[str, ...]
    settings: Mapping[str, Any]
    seconds: float
    was_interrupted: bool = False
    measured: str = ""
    """When, as an ISO date and time."""

    @property
    @abstractmethod
    def is_proved(self) -> bool:
        """Whether all was done, and nothing speaks against losslessness."""

    @property
    @abstractmethod
    def verdict(self) -> str:
        """What it comes to, in one line that begins with PROVED, NOT PROVED or NOT LOSSLESS."""

    @abstractmethod
    def found(self) -> dict[str, Any]:
        """Return what was found, as plain values."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "proved": self.is_proved,
            "verdict": self.verdict,
            "interrupted": self.was_interrupted,
            "subject": asdict(self.subject),
            "machine": asdict(self.machine),
            "drafters": list(self.drafters),
            "settings": dict(self.settings),
            "measured": self.measured,
            "seconds": self.seconds,
            **self.found(),
        }
