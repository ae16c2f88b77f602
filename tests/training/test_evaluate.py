"""An evaluation decodes for real, in turns, and adds up totals before it divides them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from outrider import Decoder, load
from outrider.engine.result import Result
from outrider.engine.stats import Stats
from outrider.errors import OptionError, PromptError
from outrider.sampling.params import SamplingParams
from outrider.training.base import Sample
from outrider.training.evaluate import Question, evaluate, questions_from
from outrider.types import DraftTree, Token
from support.scripted import ScriptedDrafter
from support.tiny import random_ids, shared_model

QUESTIONS = tuple(
    Question(random_ids(9, seed), task)
    for seed, task in enumerate(("chat", "code", "chat", "code", "code"))
)


def ticking() -> Callable[[], float]:
    ticks = iter(range(10**6))
    return lambda: float(next(ticks))


def test_drafts_are_measured_in_real_decoding_at_each_temperature() -> None:
    decoder = load(shared_model(), drafter="suffix", max_draft=4)
    found = evaluate(
        decoder, decoder.without_drafter(), QUESTIONS, max_new_tokens=24, clock=ticking()
    )
    assert (found.rule, found.max_draft, found.max_new_tokens) == ("match", 4, 24)
    assert [(score.temperature, score.task, score.prompts) for score in found.scores] == [
        (0.0, "all", 5),
        (0.0, "chat", 2),
        (0.0, "code", 3),
        (1.0, "all", 5),
        (1.0, "chat", 2),
        (1.0, "code", 3),
    ]
    assert {score.identical for score in found.scores} == {1.0}
    assert (found.differences, found.error) == ((), None)
    greedy = found.overall(0.0)
    stats = [
        decoder.generate(one.ids, temperature=0.0, max_new_tokens=24).stats for one in QUESTIONS
    ]
    assert greedy.tokens == sum(one.tokens for one in stats)
    assert greedy.acceptance_length == greedy.tokens / sum(one.rounds for one in stats)
    assert greedy.conditional_acceptance[0] == pytest.approx(
        sum(one.accepted_at[0] for one in stats if one.accepted_at)
        / sum(one.attempted_at[0] for one in stats if one.attempted_at)
    )
    with pytest.raises(OptionError, match=r"temperature is 0\.5"):
        found.overall(0.5)


def test_plain_against_plain_gains_nothing() -> None:
    decoder = load(shared_model())
    found = evaluate(decoder, decoder, QUESTIONS[:2], max_new_tokens=6, clock=ticking())
    for score in found.scores:
        assert (score.acceptance_length, score.speedup, score.identical) == (1.0, 1.0, 1.0)
        assert score.conditional_acceptance == ()


class Session:
    """A clock, and what was asked of the two decoders that answer on it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[tuple[str, float, int | None]] = []

    def clock(self) -> float:
        return self.now

    def decoder(self, name: str, *answers: tuple[list[int], float, int], **counts: Any) -> Any:
        """Return a decoder that gives (tokens, seconds, rounds) by the seed of a request."""
        target = SimpleNamespace(max_positions=100, vocab_size=64)

        def generate(ids: tuple[int, ...], *, params: SamplingParams) -> Result:
            self.log.append((name, params.temperature, params.seed))
            tokens, seconds, rounds = answers[params.seed or 0]
            self.now += seconds
            text = tuple(Token(token, "plain") for token in tokens)
            stats = Stats(tokens=len(tokens), rounds=rounds, **counts)
            return Result("", text, ids, "length", params.seed or 0, stats)

        engine = SimpleNamespace(target=target, rule="match", max_draft=3)
        return SimpleNamespace(generate=generate, engine=engine)


def test_who_goes_first_changes_from_prompt_to_prompt() -> None:
    session = Session()
    answers = [([1], 1.0, 1)] * 3
    evaluate(
        session.decoder("drafted", *answers),
        session.decoder("plain", *answers),
        [Question((1,))] * 3,
        temperatures=(1.0,),
        clock=session.clock,
    )
    _, _, *runs = session.log  # the first two are the warm-up
    names = ["drafted", "plain", "plain", "drafted", "drafted", "plain"]
    assert [name for name, _, _ in runs] == names
    assert [seed for _, _, seed in runs] == [0, 0, 1, 1, 2, 2]


def test_rates_are_totals_over_totals() -> None:
    """A short answer weighs as much as it is long: means of ratios would say something else."""
    session = Session()
    long, short = list(range(30)), [1, 2]
    counts = {"attempted_at": [4, 2], "accepted_at": [3, 1]}
    found = evaluate(
        session.decoder("drafted", (long, 10.0, 10), (short, 4.0, 2), **counts),
        session.decoder("plain", (long, 30.0, 30), (short, 2.0, 2)),
        [Question((1,)), Question((2,))],
        temperatures=(0.0,),
        clock=session.clock,
    )
    (score,) = found.scores
    assert score.tokens == 32
    assert score.acceptance_length == pytest.approx(32 / 12)
    assert score.speedup == pytest.approx(32 / 14)
    assert score.tokens_per_second == pytest.approx(32 / 14)
    assert score.conditional_acceptance == (6 / 8, 2 / 4)


def test_other_tokens_than_plain_decodings_are_counted_and_named() -> None:
    session = Session()
    decoder = session.decoder("drafted", ([1, 2, 3], 1.0, 1), ([4, 5], 1.0, 1))
    plain = session.decoder("plain", ([1, 2, 3], 1.0, 1), ([4, 6], 1.0, 1))
    questions = [Question((1,)), Question((2,))]
    options: dict[str, Any] = {"temperatures": (0.0, 1.0), "clock": session.clock}
    found = evaluate(decoder, plain, questions, **options)
    assert [score.identical for score in found.scores] == [0.5, 0.5]
    assert found.differences == (
        "temperature 0, prompt 2: token 1 is 5, plain decoding has 6",
        "temperature 1, prompt 2: token 1 is 5, plain decoding has 6",
    )
    decoder.engine.rule = "rejection"  # keeps the law of sampled text, not its tokens
    found = evaluate(decoder, plain, questions, **options)
    assert [score.identical for score in found.scores] == [0.5, None]
    assert len(found.differences) == 1


def fail(*_: object) -> DraftTree:
    raise RuntimeError("out of luck")


def test_a_drafter_that_was_dropped_is_told_of() -> None:
    decoder: Decoder = load(shared_model(), drafter=[ScriptedDrafter(fail)])
    with pytest.warns(match="out of luck"):
        found = evaluate(
            decoder, decoder.without_drafter(), QUESTIONS[:1], max_new_tokens=4, clock=ticking()
        )
    assert found.error is not None
    assert "out of luck" in found.error


def test_what_cannot_be_measured_is_one_error_before_any_work() -> None:
    decoder = load(shared_model())
    for questions, temperatures, message in (
        ((), (0.0,), "no prompts"),
        (QUESTIONS, (), "no temperatures"),
    ):
        with pytest.raises(OptionError, match=message):
            evaluate(decoder, decoder, questions, temperatures=temperatures)
    with pytest.raises(PromptError, match="300 tokens"):
        evaluate(decoder, decoder, [*QUESTIONS, Question((1,) * 300)])


def test_the_prompts_of_samples_are_asked_and_half_of_a_text_without_one() -> None:
    samples = (Sample((1, 2, 3, 4, 5), 2), Sample((1, 2, 3, 4, 5)), Sample((1,)))
    assert [one.ids for one in questions_from(samples)] == [(1, 2), (1, 2), (1,)]
