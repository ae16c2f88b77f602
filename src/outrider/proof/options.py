"""Sampling options: each one on, chosen so that it matters, and the answers compared again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from outrider.engine.result import Result
from outrider.errors import OptionError
from outrider.proof.base import Check, Unit, Work
from outrider.proof.comparing import Comparer, Question
from outrider.proof.variants import Variant
from outrider.sampling.grammar import Grammar
from outrider.sampling.params import SamplingParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SHORTEST, _LONGEST = 12, 64
_WEIGHT = 2.2  # of a token compared: plain decoding has to answer each question anew


@dataclass(frozen=True, slots=True)
class _Answer:
    """What plain decoding says without the option: where options find something to change."""

    ids: tuple[int, ...]
    text: str

    def token(self, place: int) -> int:
        """Return a token of the answer, the last one where it is too short."""
        return self.ids[min(place, len(self.ids) - 1)]

    @property
    def middle(self) -> str:
        """A few characters from the middle of the text."""
        start = len(self.text) // 2
        return self.text[start : start + 3] or " "


Options = dict[str, Any]

_DRAWN: Options = {"temperature": 1.0}
_MODES: tuple[Options, ...] = ({}, _DRAWN)
_GRAMMAR = Grammar.regex("[a-z ]+")
OPTIONS: Mapping[str, Callable[[_Answer], Options]] = {
    "temperature": lambda _: {"temperature": 0.6},
    "top_k": lambda _: _DRAWN | {"top_k": 8},
    "top_p": lambda _: _DRAWN | {"top_p": 0.8},
    "min_p": lambda _: _DRAWN | {"min_p": 0.1},
    "repetition_penalty": lambda _: {"repetition_penalty": 1.3},
    "presence_penalty": lambda _: {"presence_penalty": 2.0},
    "frequency_penalty": lambda _: {"frequency_penalty": 2.0},
    "logit_bias": lambda a: {"logit_bias": {a.token(3): -math.inf, a.token(5): 2.5}},
    "bad_words": lambda a: {"bad_words": ((a.token(2),), (a.token(5), a.token(6)))},
    "min_new_tokens": lambda a: {"min_new_tokens": 8, "stop_token_ids": (a.token(2), a.token(4))},
    "stop": lambda a: {"stop": (a.middle,)},
    "stop_token_ids": lambda a: {"stop_token_ids": (a.token(6),)},
    "logprobs": lambda _: {"logprobs": 5},
    "n": lambda _: _DRAWN | {"n": 2},
    "grammar": lambda _: {"grammar": _GRAMMAR},
    "several at once": lambda a: {
        "temperature": 0.8,
        "top_p": 0.95,
        "repetition_penalty": 1.1,
        "frequency_penalty": 0.5,
        "bad_words": ((a.token(4), a.token(5)),),
        "logprobs": 2,
    },
}
"""Each option with values taken from an answer, so that they change it."""


class OptionTrials:
    """Every option in turn, one question answered greedily and one drawn."""

    def __init__(
        self,
        comparer: Comparer,
        prompts: Sequence[tuple[str, tuple[int, ...]]],
        variants: Sequence[Variant],
        *,
        tokens: int,
        seed: int,
        tokenizer: PreTrainedTokenizerBase | None,
    ) -> None:
        """Each option is tried with every one of `variants`.

        Options that need a `tokenizer`, and what they need it for, are left out where they cannot
        be had: a check of theirs says so.
        """
        self._comparer = comparer
        self._prompts = prompts
        self._variants = variants
        self._tokens = tokens
        self._seed = seed
        self._skipped = _skipped(tokenizer)
        self._names = [name for name in OPTIONS if name not in self._skipped]
        answers = 2 * len(self._names)
        self.length = min(_LONGEST, max(_SHORTEST, math.ceil(tokens / answers)))
        self._base: tuple[int, list[Question], list[Result]] | None = None

    @property
    def weight(self) -> float:
        """What all of it takes."""
        return _WEIGHT * max(self._tokens, 2 * len(self._names) * self.length)

    def work(self) -> Work:
        """Yield a unit for each option, again and again until enough tokens are compared."""
        for name, reason in self._skipped.items():
            skipped = Check("options", name, notes=(f"{name} not tried: {reason}",))
            yield Unit(f"options/{name}", 0.0, partial(_as_it_is, skipped))
        compared = before = cycle = 0
        while not cycle or before < compared < self._tokens:
            before = compared
            for place, name in enumerate(self._names):
                check = yield Unit(
                    f"options/{cycle}/{name}",
                    _WEIGHT * 2 * self.length,
                    partial(self._run, name, cycle, place + cycle),
                )
                compared += check.counts.get("tokens", 0)
            cycle += 1

    def _run(self, name: str, cycle: int, turn: int) -> Check:
        if self._base is None or self._base[0] != cycle:
            questions = self._questions(cycle)
            self._base = (cycle, questions, self._comparer.plainly(questions))
        _, questions, unchanged = self._base
        check = Check("options", name)
        for place, (question, base) in enumerate(zip(questions, unchanged, strict=True)):
            options = OPTIONS[name](_Answer(base.token_ids, base.text))
            asked = replace(question, params=question.params.with_options(**options))
            plain = self._comparer.plainly([asked])
            variant = self._variants[(turn + place) % len(self._variants)]
            found = self._comparer.compare(
                "options", name, variant.decoder, [asked], plain, together=False
            )
            changed = int(plain[0].token_ids != base.token_ids)
            check = check.plus(found).plus(Check("options", name, {"changed": changed}))
        return check

    def _questions(self, cycle: int) -> list[Question]:
        found = []
        for place, mode in enumerate(_MODES):
            index = 2 * cycle + place
            name, prompt_ids = self._prompts[index % len(self._prompts)]
            params = SamplingParams(seed=self._seed + index, max_new_tokens=self.length, **mode)
            found.append(Question(f"{name}, {'sampled' if mode else 'greedy'}", prompt_ids, params))
        return found


def _skipped(tokenizer: PreTrainedTokenizerBase | None) -> dict[str, str]:
    """Return the options that cannot be tried, and why."""
    found = {} if tokenizer is not None else {"stop": "the model has no tokenizer"}
    try:
        _GRAMMAR.bound(tokenizer)
    except OptionError as error:
        found["grammar"] = str(error)
    return found


def _as_it_is(check: Check) -> Check:
    return check
