"""Other programs in a benchmark: their cases, and who decodes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from outrider.bench.base import Case, Runner
from outrider.bench.options import BenchOptions
from outrider.bench.peers import PEERS, LoadedPeer, PeerOptions, PeerRunner, plan_peer
from outrider.bench.plan import process_of
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
    cases = tuple(case for plan in plans for case in plan.cases)
    common = PeerOptions(
        target=model,
        draft_model=draft_model,
        head=head,
        device=device,
        log_folder=folder / LOGS,
    )
    return Contestants(
        cases=cases,
        build=_Peers(cases, common, pythons).runner,
        notes=tuple(dict.fromkeys(note for plan in plans for note in plan.notes)),
        made_with={"peers": ",".join(names)},
    )


class _Peers:
    """The peers that cases share: one for each mode and type of weights."""

    def __init__(
        self, cases: Sequence[Case], common: PeerOptions, pythons: Mapping[str, Path]
    ) -> None:
        self._common = common
        self._pythons = pythons
        self._peers: dict[Case | None, LoadedPeer] = {}
        self._batches: dict[Case | None, int] = {}
        for case in cases:
            of = process_of(case)
            self._batches[of] = max(case.batch, self._batches.get(of, 1))

    def runner(self, case: Case, context: int) -> Runner:
        """Return the runner of a case, for so many tokens of a prompt and its answer at most."""
        of = process_of(case)
        if of not in self._peers:
            options = replace(
                self._common,
                python=self._pythons.get(case.engine),
                context=context,
                batch=self._batches[of],
            )
            self._peers[of] = LoadedPeer(case, options)
        return PeerRunner(case, self._peers[of])


def _named(options: BenchOptions, kind: str) -> str | None:
    """Return what the first drafter of a kind is made from, if it is named."""
    specs: list[DrafterSpec] = [spec for one in options.drafter_sets for spec in one.specs]
    return next((spec.argument for spec in specs if spec.kind == kind and spec.argument), None)


def _has_head(target: str) -> bool:
    try:
        bundled_head("eagle", target)
    except OptionError:
        return False
    return True
