"""outrider's own cases: one loaded target, and the drafters that decode with it in turn."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outrider.bench.alternatives import weight_bytes
from outrider.bench.base import Case, CostPoint, Counters, Decoded, Runner, name_weights
from outrider.bench.drafter_sets import DrafterSet
from outrider.bench.memory import read_peak, reset_peak
from outrider.bench.meter import Meter
from outrider.bench.totals import add_by_depth
from outrider.decoder import Decoder
from outrider.drafters import build_drafter, read_head
from outrider.engine.costs import PassCosts
from outrider.engine.engine import Engine
from outrider.engine.measure import Clock, Progress, measure_passes
from outrider.engine.warming import warm_up
from outrider.errors import OutriderError
from outrider.profile import describe_subject
from outrider.sampling.params import SamplingParams
from outrider.types import TokenIds
from outrider.verification.lossy import parse_lossy

if TYPE_CHECKING:
    import torch

    from outrider.drafters.base import Drafter
    from outrider.drafters.spec import DrafterSpec
    from outrider.engine.result import Result


class OwnTarget:
    """A loaded target behind a meter, what its passes cost, and the drafters built for it."""

    def __init__(
        self,
        decoder: Decoder,
        weights: str,
        *,
        model: str = "",
        compile: bool | None = None,
        trust_remote_code: bool = False,
        clock: Clock = time.perf_counter,
    ) -> None:
        """`model` is what stands in the target's place, "" for the target itself.

        `compile` and `trust_remote_code` are those of draft models; `clock` tells seconds.
        """
        decoder.require_text()
        self.weights = weights
        self.model = model
        self.loaded = decoder.loaded
        self.clock = clock
        self.points: tuple[CostPoint, ...] = ()
        self._target: Any = decoder.engine.target
        self.meter = Meter(self._target)
        engine = Engine(self.meter.as_target, max_batch=decoder.engine.max_batch)
        self._decoder = Decoder(engine, decoder.loaded)
        self._options = {"compile": compile, "trust_remote_code": trust_remote_code}
        self._built: dict[tuple[DrafterSpec, bool], Drafter[Any]] = {}

    @property
    def description(self) -> str:
        """How passes of the target are run, in a sentence."""
        subject = describe_subject(self._decoder.loaded, self._target)
        return (
            f"outrider with {self.held} weights: passes {subject.passes}, on {self.device}, "
            f"{subject.numerics} numerics."
        )

    @property
    def held(self) -> str:
        """What its weights are called."""
        return name_weights(self.model, self.weights)

    @property
    def weight_bytes(self) -> int:
        """Bytes of its weights."""
        return weight_bytes(self.loaded.model)

    @property
    def device(self) -> torch.device:
        """Where the target computes."""
        device: torch.device = self._target.device
        return device

    def measure(self, seconds: float, progress: Progress) -> tuple[CostPoint, ...]:
        """Time the target's passes for about so long."""
        points = measure_passes(
            self._target,
            max_batch=self._decoder.engine.max_batch,
            seconds=seconds,
            clock=self.clock,
            progress=progress,
        )
        return tuple(
            CostPoint(self.weights, p.batch, p.context, p.rows, p.seconds, p.computed, self.model)
            for p in points
        )

    def decoder(self, chosen: DrafterSet, case: Case) -> Decoder:
        """Return a decoder for a case, which begins with the measured costs and nothing else."""
        drafters = [self._drafter(spec, case.rule == "block") for spec in chosen.specs]
        profile = None
        if self.points:
            profile = {"pass": pass_costs(self.points).to_dict(), "drafters": {}}
        lossy = parse_lossy(case.lossy) if case.lossy else None
        return self._decoder.using(drafters, rule=case.rule, lossy=lossy, profile=profile)

    def _drafter(self, spec: DrafterSpec, chains_only: bool) -> Drafter[Any]:
        """Return the drafter of a spec: one for all cases, for its weights are held once."""
        built = self._built.get((spec, chains_only))
        if built is None:
            head = read_head(spec, self.loaded.name, self.loaded.model.config)
            built = build_drafter(
                spec,
                self.loaded,
                self._target,
                head=head,
                chains_only=chains_only,
                **self._options,  # type: ignore[arg-type]
            )
            assert built is not None
            warm_up(self._target, [built])
            self._built[spec, chains_only] = built
        return built


def pass_costs(points: Sequence[CostPoint]) -> PassCosts:
    """Return what passes cost by the points that were measured."""
    return PassCosts.measured(
        (p.computed, p.computed * p.context, p.seconds, p.batch) for p in points
    )


@dataclass(slots=True)
class OwnRunner(Runner):
    """Decodes with a target of outrider's own. What it learns it keeps from prompt to prompt."""

    case: Case
    target: OwnTarget
    drafters: DrafterSet
    _decoder: Decoder | None = None
    _peak: int | None = None

    def start(self) -> None:
        """Build the drafters."""
        self._decoder = self.target.decoder(self.drafters, self.case)

    def decode(self, prompts: Sequence[TokenIds], *, max_new_tokens: int, seed: int) -> Decoded:
        assert self._decoder is not None, "start comes first"
        params = [
            SamplingParams(
                temperature=self.case.temperature, max_new_tokens=max_new_tokens, seed=seed + i
            )
            for i in range(len(prompts))
        ]
        device, meter = self.target.device, self.target.meter
        reset_peak(device)
        meter.reset()
        _synchronize(device)
        started = self.target.clock()
        results = self._decoder.generate_batch(list(prompts), params=params)
        _synchronize(device)
        seconds = self.target.clock() - started
        self._peak = max(filter(None, (self._peak, read_peak(device))), default=None)
        return Decoded(
            answers=tuple(result.token_ids for result in results),
            seconds=seconds,
            counters=_count(results, meter, seconds),
        )

    def peak_memory(self) -> int | None:
        return self._peak

    def close(self) -> None:
        self._decoder = None


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def _count(results: Sequence[Result], meter: Meter, seconds: float) -> Counters:
    """Add up the requests of a batch, which all begin together. Raises OutriderError.

    A drafter that was dropped is a failure here: the figures would be plain decoding's.
    """
    stats = [result.stats for result in results]
    for one in stats:
        if one.drafter_error is not None:
            raise OutriderError(f"a drafter was dropped: {one.drafter_error}")
    # The request with the most rounds took part in all of them, and counted their whole time.
    draft_s = max(stats, key=lambda one: one.rounds).draft_s
    return Counters(
        rounds=sum(one.rounds for one in stats),
        drafts=meter.drafts,
        levels=meter.levels,
        proposed=sum(one.proposed for one in stats),
        accepted=sum(one.accepted for one in stats),
        proposed_at=add_by_depth(one.proposed_at for one in stats),
        attempted_at=add_by_depth(one.attempted_at for one in stats),
        accepted_at=add_by_depth(one.accepted_at for one in stats),
        prefill_s=meter.prefill_s,
        draft_s=draft_s,
        score_s=meter.score_s,
        host_s=max(0.0, seconds - meter.prefill_s - meter.score_s - draft_s),
        passes=meter.passes,
    )
