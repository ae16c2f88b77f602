"""The cases of a peer in a benchmark, and what has to be left out of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.bench.base import Case
from outrider.bench.peers.kinds import Mode, PeerKind, find_kind


@dataclass(frozen=True, slots=True)
class PeerPlan:
    """The cases of a peer, and in words what it cannot do of what was asked for."""

    cases: tuple[Case, ...]
    notes: tuple[str, ...] = ()


def plan_peer(
    name: str,
    *,
    temperatures: Sequence[float],
    batches: Sequence[int],
    weights: str,
    draft_model: str | None = None,
    has_head: bool = True,
) -> PeerPlan:
    """Plan the cases of a peer: each of its modes at each temperature and batch.

    `weights` is outrider's name of their type, "float32", "bfloat16" or "int8". `draft_model`
    is what the modes that need one draft with, and `has_head` whether there is an EAGLE-3 head for
    the target. Raises OptionError for an unknown peer.
    """
    kind = find_kind(name)
    if weights not in kind.weights:
        known = " and ".join(kind.weights)
        return PeerPlan((), (f"{name} is compared with {known} weights only, not {weights}",))
    cases: list[Case] = []
    notes: list[str] = []
    for mode in kind.modes:
        lacking = _lacking(kind, mode, draft_model, has_head)
        if lacking is not None:
            notes.append(lacking)
            continue
        possible = [batch for batch in batches if mode.batches or batch == 1]
        if len(possible) < len(batches):
            notes.append(f"{name} {mode.name} decodes one prompt at a time: no larger batches")
        cases += [
            Case(mode.name, name, kind.weights[weights], temperature=temperature, batch=batch)
            for temperature in temperatures
            for batch in possible
        ]
    return PeerPlan(tuple(cases), tuple(notes))


def _lacking(kind: PeerKind, mode: Mode, draft_model: str | None, has_head: bool) -> str | None:
    """Say what a mode lacks to be run, None if nothing."""
    if mode.needs_draft_model and draft_model is None:
        return f"{kind.name} {mode.name} is left out: no draft model was given"
    if mode.needs_head and not has_head:
        return f"{kind.name} {mode.name} is left out: there is no EAGLE-3 head for the target"
    return None
