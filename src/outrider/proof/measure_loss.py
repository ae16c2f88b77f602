"""Measuring what a lossy rule costs: sampled texts against exact laws, greedy ones against plain.

Nothing here can come out as lossless: a lossy rule promises nothing, and what is measured says how
far from the target it led, here and this time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from outrider.decoder import Decoder
from outrider.difference import count_others
from outrider.engine.result import Result
from outrider.errors import OptionError
from outrider.machine import this_machine
from outrider.profile import describe_subject
from outrider.proof.drafters import TellingDrafter
from outrider.proof.laws import Text, first_tokens, total_variation, variation_floor
from outrider.proof.loss import Departure, Distance, Loss
from outrider.proof.prove import Progress, check_options, encoded, quiet
from outrider.proof.scenes import Scene
from outrider.proof.variants import Named, named_drafters
from outrider.proof.ways import Way, lossy_ways
from outrider.sampling.params import SamplingParams
from outrider.types import LossyRule
from outrider.workload.files import WorkloadPrompt, default_workload

_SCENES = 2
_SHORTEST, _LONGEST = 8, 128  # tokens of a greedy answer
_MAX_DRAFT = 8
_GREEDY_WEIGHT = 2.0  # of a token that is compared: it is decoded by two rules


def measure_loss(
    decoder: Decoder,
    workload: Sequence[WorkloadPrompt] | None = None,
    *,
    tokens: int = 2000,
    draws: int = 500,
    seed: int = 0,
    progress: Progress = lambda *_: None,
) -> Loss:
    """Measure how far a decoder's lossy rule takes texts from the target's own, on this machine.

    At least `tokens` greedy tokens are compared with plain decoding's, and each total variation is
    that of about `draws` answers. Ctrl-C ends it early, with what was measured by then.

    Raises OptionError for options out of range or a decoder that is not lossy, and PromptError for
    a prompt that the model cannot take.
    """
    rule = decoder.engine.lossy
    if rule is None:
        raise OptionError("the decoder has no lossy rule: there is nothing that could be lost")
    check_options(tokens, draws, seed)
    prompts = encoded(decoder, default_workload() if workload is None else workload)
    measuring = _Measuring(decoder, rule, [ids for _, ids in prompts], tokens, draws, seed)
    started = time.perf_counter()
    was_interrupted = False
    with quiet():
        try:
            measuring.run(progress)
        except KeyboardInterrupt:
            was_interrupted = True
    target: Any = decoder.engine.target
    return Loss(
        rule=str(rule),
        subject=describe_subject(decoder.loaded, target),
        machine=this_machine(target.device),
        drafters=tuple(named.name for named in named_drafters(decoder)),
        settings={"tokens": tokens, "draws": draws, "seed": seed, "prompts": len(prompts)},
        distances=tuple(measuring.distances),
        departures=tuple(measuring.departures),
        seconds=time.perf_counter() - started,
        dropped=tuple(dict.fromkeys(measuring.dropped)),
        was_interrupted=was_interrupted,
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """A piece of work, and what it takes in about the time of a token of plain decoding."""

    name: str
    weight: float
    run: Callable[[], None]


class _Measuring:
    """Measures way by way, and keeps what was found."""

    def __init__(
        self,
        decoder: Decoder,
        rule: LossyRule,
        prompts: Sequence[tuple[int, ...]],
        tokens: int,
        draws: int,
        seed: int,
    ) -> None:
        self.distances: list[Distance] = []
        self.departures: list[Departure] = []
        self.dropped: list[str] = []
        self._decoder = decoder
        self._rule = rule
        self._prompts = prompts
        self._mine = named_drafters(decoder)
        layers = {layer for one in self._mine for layer in one.drafter.feature_layers}
        target = decoder.engine.target
        self._scenes = [Scene(target, ids, sorted(layers)) for ids in prompts[:_SCENES]]
        self._seeds = range(seed, seed + draws // len(self._scenes))
        self._max_draft = max(_MAX_DRAFT, 2 + int(rule.numbers[0]) if rule.kind == "fly" else 0)
        self._length = min(_LONGEST, max(_SHORTEST, math.ceil(tokens / len(prompts))))
        self._plain: list[Result] | None = None

    def run(self, progress: Progress) -> None:
        """Measure everything."""
        steps = [*self._sampled(), *self._greedy()]
        total, done = sum(step.weight for step in steps), 0.0
        for step in steps:
            progress(step.name, done / total)
            step.run()
            done += step.weight

    # -- sampled texts --------------------------------------------------------------------------

    def _sampled(self) -> Iterator[_Step]:
        for way in lossy_ways(self._mine, self._rule):
            weight = way.weight * len(self._seeds) * len(self._scenes)
            yield _Step(f"sampled/{way.name}", weight, partial(self._draw, way))

    def _draw(self, way: Way) -> None:
        samples = [
            scene.draw(way.decoder(self._decoder, scene), self._seeds) for scene in self._scenes
        ]
        laws = [scene.law for scene in self._scenes]
        firsts = [first_tokens(law) for law in laws]
        counts: list[dict[Text, int]] = [dict(sample.counts) for sample in samples]
        first_counts = [
            {text: int(count) for text, count in first_tokens(one).items()} for one in counts
        ]
        self.distances.append(
            Distance(
                name=way.name,
                draws=sum(sample.counts.total() for sample in samples),
                drafted=sum(sample.drafted for sample in samples),
                accepted=sum(sample.accepted for sample in samples),
                first_tokens=total_variation(list(zip(first_counts, firsts, strict=True))),
                first_floor=variation_floor(firsts, len(self._seeds)),
                texts=total_variation(list(zip(counts, laws, strict=True))),
                texts_floor=variation_floor(laws, len(self._seeds)),
            )
        )
        self.dropped += [f"{way.name}: {why}" for sample in samples for why in sample.dropped]

    # -- greedy texts ---------------------------------------------------------------------------

    def _greedy(self) -> Iterator[_Step]:
        told = Named("told chains", TellingDrafter(self._decoder.engine.target.vocab_size))
        for named in (told, *self._mine):
            weight = _GREEDY_WEIGHT * self._length * len(self._prompts)
            yield _Step(f"greedy/{named.name}", weight, partial(self._depart, named))

    def _depart(self, named: Named) -> None:
        if self._plain is None:
            self._plain = self._answer(self._decoder.without_drafter())
        using = partial(self._decoder.using, (named.drafter,), max_draft=self._max_draft)
        found = self._answer(using(lossy=self._rule), self._plain)
        matched = self._answer(using(), self._plain)
        self.departures.append(
            Departure(
                name=named.name,
                answers=len(found),
                tokens=_tokens(found, self._plain),
                drafted=sum(result.stats.proposed for result in found),
                accepted=sum(result.stats.accepted for result in found),
                rounds=sum(result.stats.rounds for result in found),
                other=self._others(found),
                other_matched=self._others(matched),
                rounds_matched=sum(result.stats.rounds for result in matched),
            )
        )
        errors = (result.stats.drafter_error for result in found)
        self.dropped += [f"{named.name}: {error}" for error in errors if error is not None]

    def _others(self, found: Sequence[Result]) -> int:
        assert self._plain is not None
        pairs = zip(found, self._plain, strict=True)
        return sum(count_others(one.token_ids, plain.token_ids) for one, plain in pairs)

    def _answer(self, decoder: Decoder, plain: Sequence[Result] = ()) -> list[Result]:
        """Answer all prompts; drafters that need a prediction are given plain decoding's answer."""
        params = SamplingParams(max_new_tokens=self._length)
        known: list[tuple[int, ...] | None] = [result.token_ids for result in plain]
        predictions = known or [None] * len(self._prompts)
        return [
            decoder.generate(ids, params=replace(params, seed=0), prediction=prediction)
            for ids, prediction in zip(self._prompts, predictions, strict=True)
        ]


def _tokens(found: Sequence[Result], plain: Sequence[Result]) -> int:
    pairs = zip(found, plain, strict=True)
    return sum(max(len(one.token_ids), len(other.token_ids)) for one, other in pairs)
