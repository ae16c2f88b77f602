"""The profile of a target that was measured on this machine, found without loading the target."""

from __future__ import annotations

import logging
from pathlib import Path

from outrider.errors import LoadError
from outrider.machine import Machine
from outrider.profile import Profile
from outrider.targets.diskcache import cache_directory

_LOGGER = logging.getLogger("outrider")


def find_measured(target: str, dtype: str, machine: Machine) -> Profile | None:
    """Return the latest profile of a target in a dtype on a machine, None without any.

    One that is damaged is passed over, with a line in the log.
    """
    found: list[Profile] = []
    for path in sorted((cache_directory() / "profiles").glob("*.json")):
        profile = _read(path)
        if profile is None or (profile.subject.model, profile.subject.dtype) != (target, dtype):
            continue
        if machine.difference(profile.machine) is None:
            found.append(profile)
    # What vLLM runs is fused, and never in shapes of proven equal bits.
    return max(
        found,
        key=lambda one: (one.subject.numerics == "fast", one.subject.is_compiled, one.measured),
        default=None,
    )


def _read(path: Path) -> Profile | None:
    try:
        return Profile.load(path)
    except LoadError as error:
        _LOGGER.warning("%s", error)
        return None
