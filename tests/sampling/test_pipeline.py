"""The pipeline against Transformers' own processors, row by row, each row with its own prefix."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.generation import logits_process as hf

from outrider.errors import OptionError
from outrider.sampling.params import SamplingParams
from outrider.sampling.pipeline import LogitsPipeline

CPU = torch.device("cpu")
V = 97
EOS = (3, 11)
PROMPT = (5, 6, 7, 5, 6, 96, 8)
OUTPUT = (7, 7, 20, 6)
PATHS = [(), (7,), (7, 5), (7, 5, 6), (9,), (20, 6, 20), (6, 20, 20, 20)]


def pipeline(
    *, prompt: Sequence[int] = PROMPT, output: Sequence[int] = OUTPUT, **options: Any
) -> LogitsPipeline:
    built = LogitsPipeline(SamplingParams().with_options(**options), prompt, EOS, V, CPU)
    built.append(output[:1])
    built.append(output[1:])
    return built


def random_logits(seed: int, rows: int = len(PATHS), dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, V, generator=generator, dtype=dtype) * 3


def by_transformers(processors: list[Any], logits: Tensor) -> Tensor:
    """Run Transformers' processors on each row alone, with its full prefix."""
    rows = []
    for row, path in enumerate(PATHS):
        ids = torch.tensor([[*PROMPT, *OUTPUT, *path]])
        scores = logits[row : row + 1]
        for processor in processors:
            scores = processor(ids, scores)
        rows.append(scores)
    return torch.cat(rows)


CASES: list[tuple[dict[str, Any], list[Any]]] = [
    ({"repetition_penalty": 1.3}, [hf.RepetitionPenaltyLogitsProcessor(1.3)]),
    ({"repetition_penalty": 0.7}, [hf.RepetitionPenaltyLogitsProcessor(0.7)]),
    (
        {"logit_bias": {4: 2.5, 90: -3.0}},
        [hf.SequenceBiasLogitsProcessor([[[4], 2.5], [[90], -3.0]])],
    ),
    (
        {"bad_words": [[9], [7, 5], [20, 6, 20], [6, 7, 5, 6]]},
        [hf.NoBadWordsLogitsProcessor([[9], [7, 5], [20, 6, 20], [6, 7, 5, 6]], [3])],
    ),
    (
        {"min_new_tokens": 6},
        [hf.MinNewTokensLengthLogitsProcessor(len(PROMPT), 6, list(EOS))],
    ),
    ({"temperature": 0.7}, [hf.TemperatureLogitsWarper(0.7)]),
    ({"temperature": 1.0, "top_k": 5}, [hf.TopKLogitsWarper(5)]),
    ({"temperature": 1.0, "top_k": V + 5}, [hf.TopKLogitsWarper(V + 5)]),
    ({"temperature": 1.0, "top_p": 0.9}, [hf.TopPLogitsWarper(0.9)]),
    ({"temperature": 1.0, "top_p": 0.3}, [hf.TopPLogitsWarper(0.3)]),
    ({"temperature": 1.0, "top_p": 0.0}, [hf.TopPLogitsWarper(0.0)]),
    ({"temperature": 1.0, "min_p": 0.05}, [hf.MinPLogitsWarper(0.05)]),
    ({"temperature": 1.0, "min_p": 1.0}, [hf.MinPLogitsWarper(1.0)]),
    (
        {
            "logit_bias": {7: 1.5},
            "repetition_penalty": 1.2,
            "bad_words": [[6, 20]],
            "min_new_tokens": 5,
            "temperature": 0.8,
            "top_k": 20,
            "top_p": 0.95,
            "min_p": 0.02,
        },
        [
            hf.SequenceBiasLogitsProcessor([[[7], 1.5]]),
            hf.RepetitionPenaltyLogitsProcessor(1.2),
            hf.NoBadWordsLogitsProcessor([[6, 20]]),
            hf.MinNewTokensLengthLogitsProcessor(len(PROMPT), 5, list(EOS)),
            hf.TemperatureLogitsWarper(0.8),
            hf.TopKLogitsWarper(20),
            hf.TopPLogitsWarper(0.95),
            hf.MinPLogitsWarper(0.02),
        ],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "+".join(case[0]))
def test_each_option_does_to_each_row_what_transformers_does(
    case: tuple[dict[str, Any], list[Any]],
) -> None:
    """PROC-1, PROC-8: drafted rows are processed too, each with its own prefix."""
    options, processors = case
    for seed in range(5):
        logits = random_logits(seed)
        untouched = logits.clone()
        scores = pipeline(**options).scores(logits, PATHS)
        torch.testing.assert_close(scores, by_transformers(processors, logits))
        assert torch.equal(logits, untouched)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.7, "top_k": 9, "top_p": 0.9, "min_p": 0.01},
        {"repetition_penalty": 1.2, "frequency_penalty": 0.4, "presence_penalty": 0.3},
        {"bad_words": [[7, 5], [2]], "min_new_tokens": 6, "logit_bias": {5: 1.0}},
    ],
    ids=["filters", "penalties", "bans"],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_row_has_the_same_bits_whatever_rows_are_beside_it(
    options: dict[str, Any], dtype: torch.dtype
) -> None:
    logits = random_logits(1, dtype=dtype)
    together = pipeline(**options).scores(logits, PATHS)
    for row, path in enumerate(PATHS):
        alone = pipeline(**options).scores(logits[row : row + 1], [path])
        assert torch.equal(alone[0], together[row])
        # Having the path drafted is the same as having it emitted.
        emitted = pipeline(output=(*OUTPUT, *path), **options)
        assert torch.equal(emitted.scores(logits[row : row + 1], [()])[0], together[row])


def test_output_penalties_follow_openai_and_leave_the_prompt_out() -> None:
    """PROC-3."""
    presence, frequency = 0.5, -1.25
    logits = random_logits(2)
    scores = pipeline(presence_penalty=presence, frequency_penalty=frequency).scores(logits, PATHS)
    expected = logits.clone()
    for row, path in enumerate(PATHS):
        for token in range(V):
            count = (*OUTPUT, *path).count(token)
            expected[row, token] -= frequency * count + presence * (count > 0)
    torch.testing.assert_close(scores, expected)


def test_each_drafted_row_counts_only_the_drafts_above_it() -> None:
    """PROC-4: the second 7 is penalised because the first was drafted above it."""
    logits = torch.zeros(4, V)
    logits[:, 7], logits[:, 3] = 2.0, 1.5
    scores = pipeline(prompt=(1,), output=(), presence_penalty=1.0).scores(
        logits, [(), (7,), (7, 3), (7, 3, 7)]
    )
    assert scores.argmax(-1).tolist() == [7, 3, 7, 7]


def test_a_bad_word_is_seen_across_the_border_of_two_rounds() -> None:
    """PROC-11: 9 is the last token committed, or drafted, and 10 may not follow."""
    built = pipeline(prompt=(1, 2), output=(), bad_words=[[9, 10]])
    logits = torch.zeros(2, V)
    assert built.scores(logits, [(), (9,)])[:, 10].tolist() == [0, -math.inf]
    built.append([4, 9])
    assert built.scores(logits, [(), (9, 4)])[:, 10].tolist() == [-math.inf, 0]


def test_ending_tokens_are_masked_at_every_row_before_the_minimum() -> None:
    """STOP-9."""
    built = pipeline(prompt=(1,), output=(), min_new_tokens=2, stop_token_ids=[9])
    masked = built.scores(torch.zeros(3, V), [(), (4,), (4, 4)]).isneginf()
    assert [row.nonzero().flatten().tolist() for row in masked] == [[3, 9, 11], [3, 9, 11], []]
    ignoring = pipeline(prompt=(1,), output=(), min_new_tokens=2, ignore_eos=True)
    assert not ignoring.scores(torch.zeros(1, V), [()]).isneginf().any()


def test_min_p_leaves_the_documented_law() -> None:
    """PROC-2."""
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]], dtype=torch.float64).log()
    built = LogitsPipeline(SamplingParams(temperature=1, min_p=0.5), (0,), (), 4, CPU)
    law = built.probs(built.scores(logits, [()]))
    torch.testing.assert_close(law, torch.tensor([[0.625, 0.375, 0, 0]], dtype=torch.float64))


def test_target_filters_are_part_of_the_law() -> None:
    """DIST-15."""
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64).log()
    built = LogitsPipeline(SamplingParams(temperature=1, top_k=2), (0,), (), 4, CPU)
    law = built.probs(built.scores(logits, [()]))
    torch.testing.assert_close(law, torch.tensor([[4 / 7, 3 / 7, 0, 0]], dtype=torch.float64))


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.5, [0, 1]), (0.6, [0, 1, 2]), (0.01, [0]), (1.0, [0, 1, 2, 3])]
)
def test_among_equals_top_p_keeps_the_lowest_ids(top_p: float, kept: list[int]) -> None:
    built = LogitsPipeline(SamplingParams(temperature=1, top_p=top_p), (0,), (), 4, CPU)
    scores = built.scores(torch.zeros(1, 4), [()])
    assert scores.isfinite().nonzero()[:, 1].tolist() == kept


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.001, 0.999), st.floats(0.1, 8), st.integers(1, 300))
def test_the_nucleus_is_the_shortest_head_that_holds_top_p(
    seed: int, top_p: float, scale: float, vocab_size: int
) -> None:
    drawn = random.Random(seed)
    values = [scale * drawn.gauss(0, 1) for _ in range(vocab_size)]
    logits = torch.tensor([values], dtype=torch.float64)
    params = SamplingParams(temperature=1, top_p=top_p)
    built = LogitsPipeline(params, (0,), (), vocab_size, CPU)
    kept = built.scores(logits, [()])[0].isfinite()
    probs = logits[0].softmax(-1)
    dropped = probs[~kept]
    assert float(probs[kept].sum()) >= top_p - 1e-12
    assert float(probs[kept].sum() - probs[kept].min()) < top_p + 1e-12
    assert not len(dropped) or float(dropped.max()) <= float(probs[kept].min())


def test_greedy_ignores_the_filters_and_neutral_options_cost_no_copy() -> None:
    logits = random_logits(3)
    assert pipeline().scores(logits, PATHS) is logits
    assert pipeline(top_k=2, top_p=0.1, min_p=0.9).scores(logits, PATHS) is logits
    assert pipeline(temperature=1.0).scores(logits, PATHS) is logits


@pytest.mark.parametrize(
    ("stored", "computed"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_scores_are_computed_in_float32_or_wider(
    stored: torch.dtype, computed: torch.dtype
) -> None:
    logits = random_logits(4, dtype=stored)
    scores = pipeline(repetition_penalty=1.5, temperature=0.3).scores(logits, PATHS)
    wide = pipeline(repetition_penalty=1.5, temperature=0.3).scores(logits.to(computed), PATHS)
    assert scores.dtype == computed
    assert torch.equal(scores, wide)


def test_greedy_is_a_point_mass_on_the_lowest_of_equal_scores() -> None:
    built = pipeline()
    scores = torch.tensor([[0.0, 5.0, 5.0], [math.nan, 1.0, 2.0]])
    probs = built.probs(scores)
    assert probs[0].tolist() == [0, 1, 0]
    assert bool(probs[1].isnan().any())


def test_prompt_ids_the_target_cannot_emit_are_tolerated() -> None:
    built = pipeline(prompt=(V + 4, 5), repetition_penalty=1.5, bad_words=[[V - 1, 5]])
    assert built.scores(torch.ones(1, V), [()])[0, 5] == pytest.approx(1 / 1.5)


@pytest.mark.parametrize(
    "option", [{"logit_bias": {V: 1.0}}, {"bad_words": [[1, V]]}, {"stop_token_ids": [V]}], ids=str
)
def test_ids_outside_the_vocabulary_are_an_error(option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(OptionError, match=f"{name} holds 97: expected ids from 0 to 96"):
        pipeline(**option)
