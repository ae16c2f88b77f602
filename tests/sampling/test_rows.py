"""The target's rows: the tokens plain decoding would draw, and errors only where they matter."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from outrider.errors import NumericsError
from outrider.sampling.noise import KeyedNoise
from outrider.sampling.params import SamplingParams
from outrider.sampling.pipeline import LogitsPipeline
from outrider.sampling.rows import SampledRows, draw_rows
from outrider.types import NO_DRAFT, DraftTree

CPU = torch.device("cpu")
V = 50
PROMPT = (1, 2, 3)
TREE = DraftTree(tokens=(4, 5, 6, 7, 8), parents=(-1, -1, 0, 0, 3))


class EagerRows(SampledRows):
    """Rows that take the accelerator's way, whatever the device."""

    @property
    def is_lazy(self) -> bool:
        return self._pipeline.is_lazy


def pipeline(**options: Any) -> LogitsPipeline:
    params = SamplingParams().with_options(**options)
    return LogitsPipeline(params, PROMPT, (), V, CPU)


def random_logits(rows: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, V, generator=generator).to(dtype) * 2


OPTIONS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0},
    {"temperature": 0.6, "top_k": 8, "top_p": 0.9, "min_p": 0.01},
    {"temperature": 1.0, "frequency_penalty": 1.0, "bad_words": [[4, 9]]},
    {"repetition_penalty": 1.4},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rows_worked_out_together_or_one_by_one_agree(
    options: dict[str, Any], dtype: torch.dtype
) -> None:
    logits, noise = random_logits(6, dtype=dtype), KeyedNoise(3)
    lazy = SampledRows(logits, TREE, pipeline(**options), noise, 3)
    eager = EagerRows(logits, TREE, pipeline(**options), noise, 3)
    assert [lazy.token(row) for row in range(6)] == [eager.token(row) for row in range(6)]
    for row in range(6):
        assert torch.equal(lazy.probs(row), eager.probs(row))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_drafted_row_draws_what_plain_decoding_would(options: dict[str, Any]) -> None:
    """DIST-14: the same seed gives the same tokens with and without drafts."""
    logits, noise = random_logits(6, seed=1), KeyedNoise(9)
    rows = SampledRows(logits, TREE, pipeline(**options), noise, 3)
    paths = {0: (), 1: (4,), 2: (5,), 3: (4, 6), 4: (4, 7), 5: (4, 7, 8)}
    for row, path in paths.items():
        plain = pipeline(**options)
        plain.append(path)
        alone = SampledRows(logits[row : row + 1], NO_DRAFT, plain, noise, 3 + len(path))
        assert rows.token(row) == alone.token(0)


def test_draws_depend_on_seed_and_position() -> None:
    """PROC-5: seeds are honoured, and each request's own."""
    logits = torch.zeros(1, 50_000)
    built = LogitsPipeline(SamplingParams(temperature=1), PROMPT, (), 50_000, CPU)

    def draw(seed: int, position: int) -> int:
        return SampledRows(logits, NO_DRAFT, built, KeyedNoise(seed), position).token(0)

    assert draw(11, 3) == draw(11, 3)
    assert len({draw(11, 3), draw(12, 3), draw(11, 4)}) == 3


def test_several_requests_share_one_draw() -> None:
    chains = [DraftTree.chain([4, 5]), NO_DRAFT, DraftTree.chain([6])]
    logits = [random_logits(1 + len(tree), seed) for seed, tree in enumerate(chains)]
    options = [{}, {"temperature": 1.0}, {"temperature": 0.5}]

    def make(kind: type[SampledRows]) -> list[SampledRows]:
        return [
            kind(rows, tree, pipeline(**option), KeyedNoise(5), 3)
            for rows, tree, option in zip(logits, chains, options, strict=True)
        ]

    together, alone = make(EagerRows), make(SampledRows)
    draw_rows(together)
    draw_rows(alone)
    for one, other, tree in zip(together, alone, chains, strict=True):
        assert one._drawn is not None and other._drawn is None
        assert [one.token(i) for i in range(1 + len(tree))] == [
            other.token(i) for i in range(1 + len(tree))
        ]


@pytest.mark.parametrize("kind", [SampledRows, EagerRows])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    "bad", [[math.nan, *[0.0] * (V - 1)], [*[0.0] * (V - 1), math.nan], [-math.inf] * V], ids=str
)
def test_a_row_without_a_choice_is_an_error_if_visited_and_harmless_if_not(
    kind: type[SampledRows], options: dict[str, Any], bad: list[float]
) -> None:
    """DIST-13: an error naming request and position, never a silent token 0."""
    logits = random_logits(3)
    logits[1] = torch.tensor(bad)
    chain = DraftTree.chain([4, 5])
    rows = kind(logits, chain, pipeline(**options), KeyedNoise(0), 3, request="request 8")
    rows.token(0)
    rows.token(2)
    rows.probs(2)
    with pytest.raises(NumericsError, match="request 8: no token to choose at position 4"):
        rows.token(1)
    with pytest.raises(NumericsError, match="request 8: no token to choose at position 4"):
        rows.probs(1)


@pytest.mark.parametrize("kind", [SampledRows, EagerRows])
@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
def test_a_row_with_one_choice_takes_it(kind: type[SampledRows], options: dict[str, Any]) -> None:
    """DIST-13: all -inf but one id gives that id, with probability 1."""
    logits = torch.full((1, V), -math.inf)
    logits[0, 17] = -3.0
    rows = kind(logits, NO_DRAFT, pipeline(**options), KeyedNoise(0), 3)
    assert rows.token(0) == 17
    assert float(rows.probs(0)[17]) == 1


@pytest.mark.parametrize("kind", [SampledRows, EagerRows])
def test_among_equals_greedy_takes_the_lowest_id(kind: type[SampledRows]) -> None:
    logits = torch.zeros(1, V)
    logits[0, [9, 30, 31]] = 2.0
    assert kind(logits, NO_DRAFT, pipeline(), KeyedNoise(0), 3).token(0) == 9


def test_logits_that_belong_to_a_graph_or_to_inference_mode_are_fine() -> None:
    with torch.inference_mode():
        inference = random_logits(1)
    for logits in (random_logits(1).requires_grad_(), inference):
        for options in OPTIONS:
            rows = SampledRows(logits, NO_DRAFT, pipeline(**options), KeyedNoise(0), 3)
            assert 0 <= rows.token(0) < V
