"""What vLLM is told of a drafter: its method, its files, and how far it drafts at which load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from outrider.errors import LoadError
from outrider.machine import this_machine
from outrider.profile import Profile
from outrider.scale.drafters import VllmDrafter
from outrider.scale.lengths import (
    DEFAULTS,
    NGRAM_AGREED,
    Costs,
    fixed,
    read_costs,
    schedule,
    single,
)
from outrider.scale.profiles import find_measured
from outrider.scale.schedule import KEY, Schedule, Span, longest, to_values
from outrider.targets.devices import parse_device

_NGRAM_LONGEST = 5
_UNMEASURED = (
    "no profile of this target says what drafts cost and bring here; {} (`outrider tune` with this "
    "drafter measures it)"
)


@dataclass(frozen=True, slots=True)
class Drafting:
    """vLLM's configuration for drafts, None for plain decoding, and how it came about."""

    config: Mapping[str, Any] | None = None
    additional: Mapping[str, Any] | None = None
    """What a class of ours is told, beside vLLM's own configuration."""
    notes: tuple[str, ...] = ()


def plan_drafting(
    drafter: VllmDrafter,
    target: str,
    *,
    max_draft: int | Literal["auto"],
    dtype: str | None,
    is_cpu: bool,
    most_requests: int,
    by_batch: bool,
) -> Drafting:
    """Decide how far to draft: as far as was asked for, or as a profile says, or as is usual.

    `by_batch` tells whether vLLM can draft by how many requests share a pass; a class of ours
    always can.
    """
    if max_draft != "auto":
        return _configured(drafter, fixed(max_draft), ())
    profile = None if dtype is None else _measured(target, dtype, is_cpu)
    costs = None if profile is None else _read(profile, drafter)
    if profile is None or costs is None:
        usual = (DEFAULTS[drafter.method],)
        return _configured(drafter, usual, (_UNMEASURED.format(_told(usual)),))
    source = f"by the profile of {profile.measured}, measured with outrider's own passes"
    if by_batch or drafter.method == "suffix":
        found = schedule(costs, drafter.method, most_requests)
        return _configured(drafter, found, (f"{_told(found)}, {source}",))
    found = fixed(single(costs, most_requests))
    note = f"one length for all loads, as vLLM has replicas draft alike: {_told(found)}, {source}"
    return _configured(drafter, found, (note,))


def _measured(target: str, dtype: str, is_cpu: bool) -> Profile | None:
    device = parse_device("cpu" if is_cpu else None)
    if not is_cpu and device.type == "cpu":
        return None  # what is measured here says nothing of where vLLM computes
    return find_measured(target, dtype, this_machine(device))


def _read(profile: Profile, drafter: VllmDrafter) -> Costs | None:
    """Return what a profile holds of a drafter's costs, None if it was hardly seen drafting."""
    try:
        costs = read_costs(profile.passes, profile.drafters.get(drafter.text), drafter.method)
    except (KeyError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise LoadError(f"the profile of {profile.subject.model} is damaged: {reason}") from error
    return costs if costs.survival or drafter.method == "suffix" else None


def _configured(drafter: VllmDrafter, found: Schedule, notes: tuple[str, ...]) -> Drafting:
    most = longest(found)
    if not most:
        return Drafting(
            notes=(*notes, "drafting gains too little at any load: vLLM decodes plainly")
        )
    config: dict[str, Any] = {"method": drafter.name, "num_speculative_tokens": most}
    if drafter.model is not None:
        config["model"] = drafter.model
    if drafter.method == "ngram":
        config |= {"prompt_lookup_min": NGRAM_AGREED, "prompt_lookup_max": _NGRAM_LONGEST}
    if drafter.method == "suffix":
        return Drafting(config, {KEY: to_values(found)}, notes)
    if len(found) > 1:
        spans = [[span.first, span.last, span.length] for span in found]
        config["num_speculative_tokens_per_batch_size"] = spans
    return Drafting(config, None, notes)


def _told(found: Schedule) -> str:
    """Return a schedule in words."""
    parts = []
    for place, span in enumerate(found):
        least = f" of a chance of {span.least_chance:g} or more" if span.least_chance else ""
        parts.append(f"{span.length}{least} {_load(span, place == len(found) - 1)}")
    return "tokens drafted at most: " + ", ".join(parts)


def _load(span: Span, is_last: bool) -> str:
    if is_last:
        return "at any load" if span.first == 1 else f"with {span.first} requests or more"
    if span.first == span.last:
        return "with 1 request" if span.last == 1 else f"with {span.last}"
    return f"with {span.first} to {span.last}"
