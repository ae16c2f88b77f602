"""Drafters that propose once before they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outrider.drafters.base import Drafter
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.sampling.params import SamplingParams
from outrider.targets.base import Target

_PROMPT, _TOKENS = 8, 4


def warm_up(target: Target, drafters: Sequence[Drafter[Any]]) -> None:
    """Let drafters propose for a few tokens, so that none is judged by its first proposal.

    That one pays for what is set up and read on the way: many times what the next ones cost.
    """
    for drafter in drafters:
        if drafter.is_lookup or target.reads_input:
            continue
        prompt = tuple(token % target.vocab_size for token in range(1, 1 + _PROMPT))
        params = SamplingParams(temperature=0.0, max_new_tokens=_TOKENS)
        for _ in Engine(target, drafter, max_draft=2).run([Request(prompt, params, seed=0)]):
            pass
