"""Token identity: the same answers, whoever drafts, however far, alone or in a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

from outrider.engine.result import Result
from outrider.proof.base import Check, Unit, Work
from outrider.proof.comparing import Comparer, Question
from outrider.proof.variants import Variant
from outrider.sampling.params import SamplingParams

MODES: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 1.0},
    {},
    {"temperature": 0.7, "top_k": 50, "top_p": 0.9},
)
"""How the questions of a group are sampled; a batch holds them all."""

_PER_PLAIN = 4  # variants that share plain decoding's answers
_SHORTEST, _LONGEST = 8, 128  # tokens of an answer
_WEIGHT = 1.3  # of a token compared, plain decoding's share included


class IdentityTrials:
    """Groups of questions and variants in turn, until enough tokens are compared."""

    def __init__(
        self,
        comparer: Comparer,
        prompts: Sequence[tuple[str, tuple[int, ...]]],
        variants: Sequence[Variant],
        *,
        tokens: int,
        seed: int,
    ) -> None:
        """`prompts` are names and ids; at least `tokens` tokens are compared, by every variant."""
        self._comparer = comparer
        self._prompts = prompts
        self._variants = variants
        self._tokens = tokens
        self._seed = seed
        self._answers = sum(2 if variant.greedy_only else len(MODES) for variant in variants)
        self.length = min(_LONGEST, max(_SHORTEST, math.ceil(tokens / self._answers)))
        self._group: tuple[int, list[Question], list[Result]] | None = None

    @property
    def weight(self) -> float:
        """What all of it takes."""
        return _WEIGHT * max(self._tokens, self._answers * self.length)

    def work(self) -> Work:
        """Yield a unit for each trial."""
        compared = before = trial = 0
        cycle = len(self._variants)
        while trial < cycle or compared < self._tokens:
            if trial and trial % cycle == 0:
                if compared == before:  # nothing can be compared: every answer is a fault
                    return
                before = compared
            variant = self._variants[trial % cycle]
            size = 2 if variant.greedy_only else len(MODES)
            check = yield Unit(
                f"identity/{trial}",
                _WEIGHT * size * self.length,
                partial(self._run, variant, trial),
            )
            compared += check.counts.get("tokens", 0)
            trial += 1

    def _run(self, variant: Variant, trial: int) -> Check:
        group = trial // _PER_PLAIN
        if self._group is None or self._group[0] != group:
            questions = self._questions(group)
            self._group = (group, questions, self._comparer.plainly(questions))
        _, questions, plain = self._group
        chosen = [
            index
            for index, question in enumerate(questions)
            if question.params.is_greedy or not variant.greedy_only
        ]
        # Alone in one cycle, together in the next.
        together = (trial + trial // len(self._variants)) % 2 == 0
        return self._comparer.compare(
            "identity",
            variant.name,
            variant.decoder,
            [questions[index] for index in chosen],
            [plain[index] for index in chosen],
            together=together,
        )

    def _questions(self, group: int) -> list[Question]:
        """Return the questions of a group; when prompts come round, they are sampled otherwise."""
        size = len(MODES)
        found = []
        for place, mode in enumerate(Random(f"modes {group}").sample(MODES, size)):
            index = group * size + place
            name, prompt_ids = self._prompts[index % len(self._prompts)]
            seed = self._seed + index
            params = SamplingParams(seed=seed, max_new_tokens=self.length, **mode)
            found.append(Question(f"{name}, {_told(mode, seed)}", prompt_ids, params))
        return found


def _told(mode: dict[str, Any], seed: int) -> str:
    if not mode:
        return "greedy"
    return ", ".join([*(f"{name} {value:g}" for name, value in mode.items()), f"seed {seed}"])
