"""Other programs in a benchmark: their cases, and who decodes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from outrider.bench.base import Case, Runner
from outrider.bench.options import BenchOptions
from outrider.bench.peers import PEERS, build_peer, plan_peer
from outrider.bench.weights import split_suffix
from outrider.bundled import bundled_head
from outrider.drafters.spec import DrafterSpec
from outrider.errors import OptionError

LOGS = "logs"


@dataclass(frozen=True, slots=True)
class Contestants:
    """Cases that are not outrider's own, who decodes them, and what was left out of them."""

    cases: tuple[Case, ...] = ()
    build: Callable[[Case, int], Runner] | None = None
    """Gives a case its runner, for so many tokens of a prompt and its answer at most."""
    notes: tuple[str, ...] = ()
    made_with: Mapping[str, Any] = field(default_factory=dict)
    """What tells their records from those of another command."""


NO_PEERS = Contestants()


def check_peers(names: Sequence[str], pythons: Mapping[str, Path]) -> None:
    """Raise OptionError for an unknown peer, and for a Python of one that is not asked for."""
    for place, name in enumerate(names):
        if name not in PEERS:
            raise OptionError(f"peer {name!r} is unknown; known are {', '.join(PEERS)}")
        if name in names[:place]:
            raise OptionError(f"peers name {name} twice; name each once")
    for name in pythons:
        if name not in names:
            raise OptionError(f"a Python is named for peer {name!r}, which is not compared")


def find_peers(
    names: Sequence[str],
    options: BenchOptions,
    *,
    target: str,
    weights: Sequence[str],
    device: str,
    pythons: Mapping[str, Path],
    folder: Path,
) -> Contestants:
    """Return the cases of peers, with each type of weights that they know.

    They draft with the draft model and the EAGLE head that are among outrider's own drafters, or
    with the head that comes with outrider. What they print goes into `folder`. Raises what
    `check_peers` raises.
    """
    check_peers(names, pythons)
    model, _ = split_suffix(target)
    draft_model, head = _named(options, "model"), _named(options, "eagle")
    plans = [
        plan_peer(
            name,
            temperatures=options.temperatures,
            batches=options.batches,
            weights=kind,
            draft_model=draft_model,
            has_head=head is not None or _has_head(model),
        )
        for name in names
        for kind in weights
    ]
    build = partial(
        _build,
        target=model,
        draft_model=draft_model,
        head=head,
        device=device,
        pythons=pythons,
        folder=folder,
    )
    return Contestants(
        cases=tuple(case for plan in plans for case in plan.cases),
        build=build,
        notes=tuple(dict.fromkeys(note for plan in plans for note in plan.notes)),
        made_with={"peers": ",".join(names)},
    )


def _build(
    case: Case,
    context: int,
    *,
    target: str,
    draft_model: str | None,
    head: str | None,
    device: str,
    pythons: Mapping[str, Path],
    folder: Path,
) -> Runner:
    return build_peer(
        case,
        target=target,
        draft_model=draft_model,
        head=head,
        python=pythons.get(case.engine),
        context=context,
        device=device,
        log_folder=folder / LOGS,
    )


def _named(options: BenchOptions, kind: str) -> str | None:
    """Return what the first drafter of a kind is made from, if it is named."""
    specs: list[DrafterSpec] = [spec for one in options.alternatives for spec in one.specs]
    return next((spec.argument for spec in specs if spec.kind == kind and spec.argument), None)


def _has_head(target: str) -> bool:
    try:
        bundled_head("eagle", target)
    except OptionError:
        return False
    return True
