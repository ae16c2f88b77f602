"""The law of sampled text: many short answers counted against the target's exact probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from outrider.decoder import Decoder
from outrider.proof.base import Check, Unit, Work
from outrider.proof.drafters import ContraryDrafter
from outrider.proof.laws import ChiSquare, binomial_p_value, chi_square
from outrider.proof.rounds import LAW, MakeRandomness, SharingRandomness, draw_rounds
from outrider.proof.scenes import Sample, Scene
from outrider.proof.variants import Named
from outrider.proof.ways import REJECTING, Way, own_ways, ways_of
from outrider.sampling.noise import KeyedRandomness
from outrider.types import Rule

FALSE_ALARM = 1e-6
"""How often the tests of a sound pair fail, all of them together."""

_SCENES = 2
_ROUNDS = 4000  # of a test of noise: enough to see what is to be seen
_ROUND_WEIGHT = 0.01


class DistributionTests:
    """The law of sampled text under each rule, with drafts that are hard on it and the user's own.

    First the noise, in single rounds of a fixed law; then whole answers of the target.
    """

    def __init__(
        self,
        decoder: Decoder,
        prompts: Sequence[tuple[int, ...]],
        drafters: Sequence[Named],
        chains: Sequence[Named],
        *,
        draws: int,
        seed: int,
    ) -> None:
        """`chains` are the drafters, or others like them, for rules that verify nothing else."""
        self._decoder = decoder
        self._draws = draws
        self._seed = seed
        target = decoder.engine.target
        layers = {layer for one in (*drafters, *chains) for layer in one.drafter.feature_layers}
        self._scenes = [Scene(target, ids, sorted(layers)) for ids in prompts[:_SCENES]]
        self._ways = [*own_ways(), *ways_of(drafters, chains)]
        sound = sum(1 + way.knows_share for way in self._ways if not way.is_control)
        self._alarm = FALSE_ALARM / (sound + len(REJECTING))

    @property
    def weight(self) -> float:
        """What all of it takes."""
        answers = self._draws * sum(way.weight for way in self._ways)
        return answers + _ROUND_WEIGHT * _ROUNDS * (1 + len(REJECTING))

    def work(self) -> Work:
        """Yield a unit for each test."""
        for name, rule, make_randomness in _noises():
            run = partial(self._run_rounds, name, rule, make_randomness)
            yield Unit(f"distribution/{name}", _ROUND_WEIGHT * _ROUNDS, run)
        for way in self._ways:
            run = partial(self._run, way)
            yield Unit(f"distribution/{way.name}", way.weight * self._draws, run)

    def _run_rounds(self, name: str, rule: Rule, make_randomness: MakeRandomness) -> Check:
        counts = draw_rounds(rule, self._seeds(_ROUNDS), make_randomness)
        found = chi_square([(counts, LAW)])
        is_control = make_randomness is not KeyedRandomness
        return Check(
            "distribution",
            name,
            {"tests": 1, "draws": counts.total(), "drafted": counts.total()},
            faults=self._faults(name, found, is_control=is_control),
            notes=(str(found),),
        )

    def _run(self, way: Way) -> Check:
        seeds = self._seeds(self._draws // len(self._scenes))
        try:
            samples = [
                scene.draw(way.decoder(self._decoder, scene), seeds) for scene in self._scenes
            ]
        except Exception as error:  # noqa: BLE001  whatever decoding raises speaks against it
            fault = f"{way.name}: {type(error).__name__}: {error}"
            return Check("distribution", way.name, faults=(fault,))
        pairs = list(zip(samples, self._scenes, strict=True))
        found = chi_square([(sample.counts, scene.law) for sample, scene in pairs])
        faults = self._faults(way.name, found, is_control=way.is_control)
        notes: tuple[str, ...] = (str(found),)
        if way.knows_share:
            told, is_off = self._acceptance(way, pairs)
            notes += (told,)
            faults += (f"{way.name}: {told}",) if is_off else ()
        return Check(
            "distribution",
            way.name,
            {
                "tests": 1,
                "draws": sum(sample.counts.total() for sample in samples),
                "drafted": sum(sample.drafted for sample in samples),
                "accepted": sum(sample.accepted for sample in samples),
            },
            faults=faults,
            notes=notes,
            dropped=tuple(f"{way.name}: {why}" for sample in samples for why in sample.dropped),
        )

    def _seeds(self, count: int) -> range:
        return range(self._seed, self._seed + count)

    def _faults(self, name: str, found: ChiSquare, *, is_control: bool) -> tuple[str, ...]:
        is_off = found.p_value < self._alarm
        if is_control and not is_off:
            return (f"{name}: passed, though it is wrong: {found}",)
        if is_off and not is_control:
            return (f"{name}: not the target's law: {found}, alarm below {self._alarm:.1g}",)
        return ()

    def _acceptance(self, way: Way, pairs: Sequence[tuple[Sample, Scene]]) -> tuple[str, bool]:
        """Compare how often first drafts were accepted with what the rule promises."""
        expected = 0.0
        for sample, scene in pairs:
            (drafter,) = way.build(scene)
            assert isinstance(drafter, ContraryDrafter)
            expected += sample.counts.total() * scene.accepted_share(drafter)
        hits = sum(sample.firsts for sample, _ in pairs)
        draws = sum(sample.counts.total() for sample, _ in pairs)
        p_value = binomial_p_value(hits, draws, expected / draws)
        told = f"{hits} of {draws} first drafts accepted, {expected:.0f} expected, p {p_value:.2g}"
        return told, p_value < self._alarm


def _noises() -> Iterator[tuple[str, Rule, MakeRandomness]]:
    """Yield the tests of noise: name, rule, and where its decisions come from."""
    for rule in REJECTING:
        yield f"noise of single rounds, {rule}", rule, KeyedRandomness
    yield "control: noise shared by drafts and recovery", "rejection", SharingRandomness
