"""Custom processors: one row at a time, only rows asked for, each with its full prefix."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.generation import logits_process as hf

from outrider.errors import OptionError
from outrider.sampling.custom import Complete, LimitRelative, PromptRelative, TailFilter
from outrider.sampling.noise import KeyedNoise
from outrider.sampling.params import SamplingParams
from outrider.sampling.pipeline import LogitsPipeline
from outrider.sampling.rows import SampledRows, draw_rows
from outrider.types import DraftTree

CPU = torch.device("cpu")
V = 12
PROMPT = (7, 8, 9)


class BansEveryThirdCall:
    """Records each prefix it sees, and bans id 5 on every third call."""

    def __init__(self) -> None:
        self.prefixes: list[list[int]] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        assert input_ids.shape[0] == scores.shape[0] == 1
        self.prefixes.append(input_ids[0].tolist())
        if len(self.prefixes) % 3 == 0:
            scores[:, 5] = -math.inf  # in place, as careless processors do
        return scores


def pipeline(*processors: Any, **options: Any) -> LogitsPipeline:
    params = SamplingParams(logits_processors=processors, **options)
    return LogitsPipeline(params, PROMPT, (), V, CPU)


def test_a_stateful_processor_sees_each_emitted_prefix_once_and_in_order() -> None:
    """PROC-7: rows below the first rejection are never shown to it."""
    processor = BansEveryThirdCall()
    built = pipeline(processor)
    logits = torch.zeros(4, V)
    logits[:, 5] = 1.0
    rows = SampledRows(logits, DraftTree.chain([5, 6, 5]), built, KeyedNoise(0), 3)
    draw_rows([rows])
    assert processor.prefixes == []
    assert [rows.token(0), rows.token(1)] == [5, 5]  # 5 is not 6: rejected here
    built.append([5, 5])
    after = SampledRows(logits[:1], DraftTree(), built, KeyedNoise(0), 5)
    assert after.token(0) == 0
    assert processor.prefixes == [[7, 8, 9], [7, 8, 9, 5], [7, 8, 9, 5, 5]]
    assert float(logits.min()) == 0  # what it wrote stayed its own


def test_a_row_asked_for_twice_is_shown_once() -> None:
    processor = BansEveryThirdCall()
    built = pipeline(processor, temperature=1.0)
    rows = SampledRows(torch.zeros(1, V), DraftTree(), built, KeyedNoise(0), 3)
    rows.token(0)
    rows.probs(0)
    assert len(processor.prefixes) == 1


def test_custom_processors_run_after_the_bans_and_before_the_temperature() -> None:
    seen: list[Tensor] = []

    def record(input_ids: Tensor, scores: Tensor) -> Tensor:
        seen.append(scores.clone())
        return scores + 1

    logits = torch.ones(1, V)
    scores = pipeline(record, temperature=0.5, bad_words=((4,),)).scores(logits, [()])
    assert seen[0][0, 4] == -math.inf
    assert seen[0][0, 0] == 1
    assert scores[0, 0] == 4


def test_prefixes_grow_with_what_is_appended() -> None:
    processor = BansEveryThirdCall()
    built = pipeline(processor)
    output: list[int] = []
    for token in range(40):
        built.append([token % V])
        output.append(token % V)
        built.scores(torch.zeros(1, V), [(1, 2)])
    assert processor.prefixes[-1] == [*PROMPT, *output, 1, 2]


@pytest.mark.parametrize("result", [torch.zeros(V), torch.zeros(1, V + 1), None])
def test_a_processor_that_returns_nonsense_is_named(result: Any) -> None:
    def broken(input_ids: Tensor, scores: Tensor) -> Any:
        return result

    with pytest.raises(OptionError, match=r"logits_processors: .* expected \(1, 12\)"):
        pipeline(broken).scores(torch.zeros(1, V), [()])


def test_a_prompt_relative_processor_is_built_for_each_prompt() -> None:
    first = PromptRelative(partial(hf.SuppressTokensAtBeginLogitsProcessor, [5]))
    built = pipeline(first)
    scores = built.scores(torch.zeros(2, V), [(), (1,)])
    assert scores[:, 5].tolist() == [-math.inf, 0]
    with pytest.raises(TypeError, match="build the processor"):
        first(torch.zeros(1, 1), torch.zeros(1, V))


def test_a_tail_filter_runs_on_all_rows_at_once_and_only_when_sampling() -> None:
    tail = TailFilter(hf.TypicalLogitsWarper(0.5))
    logits = torch.randn(3, V, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sampled = pipeline(tail, temperature=0.7)
    assert not sampled.is_lazy
    expected = hf.TypicalLogitsWarper(0.5)(torch.zeros(3, 1, dtype=torch.int64), logits / 0.7)
    assert torch.equal(sampled.scores(logits, [(), (1,), (1, 2)]), expected)
    assert pipeline(tail).scores(logits, [(), (1,), (1, 2)]) is logits


def test_a_complete_processor_leaves_temperature_and_tail_to_drafters() -> None:
    logits = torch.randn(2, V, generator=torch.Generator().manual_seed(0))
    halved = Complete(lambda input_ids, scores: scores / 2)
    built = pipeline(halved, temperature=0.1, top_k=1, top_p=0.5, min_p=0.9)
    assert torch.equal(built.scores(logits, [(), (1,)]), logits / 2)
    assert not built.is_greedy


def test_a_processor_that_must_know_the_limit_is_built_for_each_request() -> None:
    built = pipeline(LimitRelative(partial(hf.ForcedEOSTokenLogitsProcessor, eos_token_id=4)))
    one = pipeline(
        LimitRelative(partial(hf.ForcedEOSTokenLogitsProcessor, eos_token_id=4)), max_new_tokens=2
    )
    free = built.scores(torch.zeros(1, V), [(1,)])
    last = one.scores(torch.zeros(1, V), [(1,)])
    assert free.isfinite().all()
    assert last.isfinite().sum() == 1 and last[0, 4] == 0
    with pytest.raises(TypeError, match="limit"):
        LimitRelative(partial(hf.ForcedEOSTokenLogitsProcessor, eos_token_id=4))(*[None] * 2)  # type: ignore[arg-type]
