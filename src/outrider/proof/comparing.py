"""Answers with drafts beside plain decoding's answers to the same questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from outrider.decoder import Decoder
from outrider.difference import first_difference
from outrider.engine.result import Result
from outrider.proof.base import Check, Fork, Part
from outrider.proof.rounding import Place, Rounding, margin, measure_rounding
from outrider.sampling.params import SamplingParams
from outrider.types import TokenLogprobs

_TOP = 5  # log-probabilities compared at each position, where bits are
_SOFTMAX = 1e-12  # what rounding in float64 makes of log-probabilities, from equal logits


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt with its sampling options, a seed among them."""

    name: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams


@dataclass(frozen=True, slots=True)
class _Pair:
    """One answer and plain decoding's, to the same question."""

    name: str
    asked: tuple[int, ...]
    found: Result
    plain: Result
    params: SamplingParams


class Comparer:
    """Decodes questions plainly and with drafts, and finds what differs.

    Under invariant numerics nothing may, down to the bits of log-probabilities. Otherwise a token
    may differ where rounding explains it.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._plain = decoder.without_drafter()
        self._target = decoder.engine.target
        self._tokenizer = decoder.tokenizer
        self._eos_token_ids = decoder.eos_token_ids
        self.is_bitwise = self._target.numerics == "invariant"

    def plainly(self, questions: Sequence[Question]) -> list[Result]:
        """Answer questions one by one without a drafter."""
        return [
            self._plain.generate(question.prompt_ids, params=self._params(question))
            for question in questions
        ]

    def compare(
        self,
        part: Part,
        name: str,
        decoder: Decoder,
        questions: Sequence[Question],
        plain: Sequence[Result],
        *,
        together: bool,
    ) -> Check:
        """Answer questions with drafts, one by one or `together`, and compare the answers.

        Drafters that use a prediction are given plain decoding's own answer.
        """
        size = len(questions) if together else 1
        try:
            found = [
                result
                for start in range(0, len(questions), size)
                for result in self._answer(
                    decoder, questions[start : start + size], plain[start : start + size]
                )
            ]
        except Exception as error:  # noqa: BLE001  whatever decoding raises speaks against it
            return Check(part, name, faults=(f"{name}: {type(error).__name__}: {error}",))
        check = Check(part, name, {"batched": len(questions) if together else 0})
        for question, ours, theirs in zip(questions, found, plain, strict=True):
            for pair in _pairs(f"{name}, {question.name}", question, ours, theirs):
                check = check.plus(self._judge(part, name, pair))
        return check

    def _answer(
        self, decoder: Decoder, questions: Sequence[Question], plain: Sequence[Result]
    ) -> list[Result]:
        return decoder.generate_batch(
            [question.prompt_ids for question in questions],
            params=[self._params(question) for question in questions],
            predictions=[result.token_ids for result in plain],
        )

    def _params(self, question: Question) -> SamplingParams:
        params = question.params
        wants_bits = self.is_bitwise and params.logprobs is None
        return replace(params, logprobs=_TOP) if wants_bits else params

    def _judge(self, part: Part, name: str, pair: _Pair) -> Check:
        ours, theirs = pair.found.token_ids, pair.plain.token_ids
        at = first_difference(ours, theirs)
        stats = pair.found.stats
        counts = Counter(
            answers=1,
            tokens=len(ours) if at is None else at + 1,
            drafted=stats.proposed,
            accepted=stats.accepted,
        )
        forks, faults = [], []
        if at is not None and at < min(len(ours), len(theirs)):
            forks.append(self._fork(pair, at))
        elif at is not None:
            faults.append(f"{pair.name}: {len(ours)} tokens, plain decoding has {len(theirs)}")
        elif (pair.found.text, pair.found.finish_reason) != (
            pair.plain.text,
            pair.plain.finish_reason,
        ):
            faults.append(f"{pair.name}: the same tokens, but another text or end")
        fault, note = self._logprobs(pair, at)
        return Check(
            part,
            name,
            counts,
            tuple(forks),
            (*faults, *fault),
            note,
            () if stats.drafter_error is None else (f"{name}: {stats.drafter_error}",),
        )

    # -- differences ----------------------------------------------------------------------------

    def _fork(self, pair: _Pair, at: int) -> Fork:
        token, plain = pair.found.token_ids[at], pair.plain.token_ids[at]
        fork = Fork(pair.name, at, token, plain)
        if self.is_bitwise:
            return fork
        rounding = self._rounding(pair, at)
        place = Place(
            pair.plain.prompt_ids,
            pair.plain.token_ids[:at],
            pair.params.for_tokenizer(self._tokenizer),
            pair.plain.seed,
            self._eos_token_ids,
        )
        preferred = margin(self._target, place, rounding.logits, plain, token)
        return replace(fork, margin=preferred, noise=rounding.noise)

    def _rounding(self, pair: _Pair, at: int) -> Rounding:
        return measure_rounding(
            self._target,
            pair.plain.prompt_ids,
            pair.plain.token_ids[:at],
            input_ids=pair.asked if self._target.reads_input else None,
        )

    def _logprobs(self, pair: _Pair, fork: int | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Compare log-probabilities up to a fork; returns faults and notes."""
        ours, theirs = pair.found.logprobs or (), pair.plain.logprobs or ()
        if fork is None and len(ours) != len(theirs):
            told = f"log-probabilities of {len(ours)} tokens, plain decoding has {len(theirs)}"
            return (f"{pair.name}: {told}",), ()
        apart = [_apart(*records) for records in zip(ours[:fork], theirs[:fork], strict=False)]
        worst = max(apart, default=0.0)
        if worst == 0:
            return (), ()
        at = apart.index(worst)
        what = f"log-probabilities at token {at} differ by {worst:.2g}"
        if self.is_bitwise:
            return (f"{pair.name}: {what}",), ()
        noise = self._rounding(pair, at).noise + _SOFTMAX
        told = f"{pair.name}: {what}, noise {noise:.2g}"
        return ((told,), ()) if worst > noise else ((), (told,))


def _pairs(name: str, question: Question, found: Result, plain: Result) -> Iterator[_Pair]:
    """Yield each choice of an answer beside plain decoding's."""
    params, asked = question.params, question.prompt_ids
    if not plain.choices:
        yield _Pair(name, asked, found, plain, params)
        return
    for index, (ours, theirs) in enumerate(zip(found.choices, plain.choices, strict=True)):
        yield _Pair(f"{name}, choice {index}", asked, ours, theirs, params.for_choice(index))


def _apart(ours: TokenLogprobs, theirs: TokenLogprobs) -> float:
    """Return how far two records are apart, rank by rank: ids of equal ranks may tie.

    Bits that differ are some distance apart, infinities and all.
    """
    if ours == theirs:
        return 0.0
    values = zip(
        (ours.chosen, *(value for _, value in ours.top)),
        (theirs.chosen, *(value for _, value in theirs.top)),
        strict=True,
    )
    largest = max(0.0 if one == other else abs(one - other) for one, other in values)
    return largest or 5e-324  # the same values for other ids
