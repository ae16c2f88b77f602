"""Whether what a scheduler holds adds up: for tests, and for the end of long runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from outrider.engine.events import Ticket
from outrider.engine.prefixes import Prefix
from outrider.engine.state import RequestState
from outrider.targets.base import Target


def audit(
    target: Target,
    states: Sequence[RequestState],
    prefixes: Sequence[Prefix],
    waiting: Sequence[Ticket],
) -> list[str]:
    """Return what is wrong between rounds, a line each."""
    held = Counter(state.sequence for state in states)
    held.update(prefix.sequence for prefix in prefixes)
    found = [f"sequence {handle} is held {n} times" for handle, n in held.items() if n > 1]
    found += [line for state in states for line in _faults(target, state)]
    for prefix in prefixes:
        cached, known = target.cached(prefix.sequence), len(prefix.tokens)
        if cached != known:
            found.append(f"idle sequence {prefix.sequence} holds {cached} tokens, {known} known")
    if len(set(waiting)) < len(waiting):
        found.append("a request waits twice")
    return found


def _faults(target: Target, state: RequestState) -> list[str]:
    name, cached, known = state.request.name, target.cached(state.sequence), len(state.tokens)
    found = []
    if state.finish_reason is not None:
        found.append(f"{name} has finished and still runs")
    if cached >= known:
        found.append(f"{name} has {cached} tokens cached of {known}, which leaves no root")
    if state.has_begun and cached != known - 1:
        found.append(f"{name} has {cached} tokens cached of {known}, and decodes")
    found += [
        f"{name} has a drafter that is out and begun"
        for seat in state.seats
        if seat.is_out and seat.is_begun
    ]
    return found
