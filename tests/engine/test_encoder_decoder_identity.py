"""Speculation never changes what an encoder-decoder says of its input, whoever drafts and how."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.ngram import NgramDrafter, NgramState
from outrider.drafters.prediction import PredictionDrafter
from outrider.drafters.suffix import SuffixDrafter
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.engine.result import Result
from outrider.targets.encoder_decoder import EncoderDecoderTarget
from outrider.types import Rule
from support.encoder_decoders import (
    FAMILIES,
    INPUTS,
    draft_pair,
    greedy_output,
    read_request,
    shared_pair,
    shared_pair_target,
    tiny_encoder_decoder,
)
from support.runs import assert_same, collect
from support.scripted import always, random_trees, silent
from support.tiny import VOCAB

COUNT = 24
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "penalised": {"repetition_penalty": 1.5},
    "sampled": {"temperature": 1.0, "seed": 11},
    "filtered": {"temperature": 0.7, "top_k": 20, "repetition_penalty": 1.2, "seed": 4},
}


def requests(mode: str, family: str = "t5", hints: bool = False) -> list[Request]:
    """Return a request for each input; the hint is a third wrong, as a user's would be."""
    found = []
    for index, input_ids in enumerate(INPUTS):
        ids = plain(family, "greedy")[index].token_ids if hints else ()
        hint = [0 if i % 7 == 5 else token for i, token in enumerate(ids)]
        options = {"max_new_tokens": COUNT, "logprobs": 2} | MODES[mode]
        found.append(read_request(input_ids, prediction=hint or None, **options))
    return found


@functools.cache
def plain(family: str, mode: str) -> list[Result]:
    return collect(Engine(shared_pair_target(family)), requests(mode, family))


def likely(family: str) -> Callable[[tuple[int, ...]], Sequence[float]]:
    """Return the target's own logits of the first input's text, for trees that know them."""
    model: Any = shared_pair(family)

    @functools.cache
    def logits(context: tuple[int, ...]) -> list[float]:
        inputs, text = torch.tensor([INPUTS[0]]), torch.tensor([context])
        with torch.inference_mode():
            found: Tensor = model(input_ids=inputs, decoder_input_ids=text).logits
        row: list[float] = found[0, -1].tolist()
        return row

    return logits


DRAFTERS: dict[str, Callable[[str], Drafter[Any]]] = {
    "ngram": lambda _: NgramDrafter(min_ngram=1),
    "suffix": lambda _: SuffixDrafter(max_shared_tokens=64),
    "prediction": lambda _: PredictionDrafter(),
    "unrelated": lambda _: draft_pair("unrelated"),
    "noisy": lambda family: draft_pair("noisy", family),
    "noisy tree": lambda family: draft_pair("noisy", family, width=3),
    "exact": lambda family: draft_pair("exact", family),
    "trees": lambda family: random_trees(VOCAB, knows=likely(family)),
    "stubborn": lambda _: always(3),
    "silent": lambda _: silent(),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_plain_decoding_says_what_transformers_says_of_ragged_inputs(family: str) -> None:
    found = [list(result.token_ids) for result in plain(family, "greedy")]
    assert found == [greedy_output(shared_pair(family), ids, COUNT) for ids in INPUTS]
    assert len(set(map(tuple, found))) == len(INPUTS), "texts that do not follow their inputs"


@pytest.mark.parametrize("family", FAMILIES)
def test_penalties_are_those_of_transformers(family: str) -> None:
    found = [list(result.token_ids) for result in plain(family, "penalised")]
    wanted = [
        greedy_output(shared_pair(family), ids, COUNT, repetition_penalty=1.5) for ids in INPUTS
    ]
    assert found == wanted
    assert all(len(set(ids)) > 5 for ids in found), "texts that say nothing prove nothing"


@pytest.mark.parametrize(
    ("family", "name", "mode"),
    [
        *((family, "trees", "sampled") for family in FAMILIES),
        *((family, "noisy", "penalised") for family in FAMILIES),
        *((family, "exact", "sampled") for family in ("t5", "bart", "marian")),
    ],
)
def test_drafts_change_nothing_in_any_family(family: str, name: str, mode: str) -> None:
    engine = Engine(shared_pair_target(family), DRAFTERS[name](family), max_draft=7)
    found = collect(engine, requests(mode, family))
    for result, expected in zip(found, plain(family, mode), strict=True):
        assert_same(result, expected)
        assert result.stats.drafter_error is None
    if name == "exact" and mode != "penalised":  # drafts know of no penalties
        assert all(result.stats.acceptance_rate == 1 for result in found)
    if name in ("noisy", "trees"):
        assert sum(result.stats.accepted for result in found) > 0


@pytest.mark.parametrize(("mode", "max_draft"), [("greedy", 7), ("sampled", 1), ("filtered", 3)])
@pytest.mark.parametrize("name", DRAFTERS)
def test_no_drafter_changes_anything_at_any_draft_length(
    name: str, mode: str, max_draft: int
) -> None:
    engine = Engine(shared_pair_target(), DRAFTERS[name]("t5"), max_draft=max_draft)
    wanted = requests(mode, hints=name == "prediction")
    for result, expected in zip(collect(engine, wanted), plain("t5", mode), strict=True):
        assert_same(result, expected)
        assert result.stats.drafter_error is None


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal"])
@pytest.mark.parametrize("name", ["ngram", "noisy", "exact"])
def test_greedy_decoding_is_the_same_under_the_rules_that_reject(rule: Rule, name: str) -> None:
    engine = Engine(shared_pair_target(), DRAFTERS[name]("t5"), rule=rule, max_draft=5)
    found = collect(engine, requests("greedy"))
    for result, expected in zip(found, plain("t5", "greedy"), strict=True):
        assert_same(result, expected)


@pytest.mark.parametrize("family", ["t5", "bart"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_invariant_numerics_make_low_precision_identical_too(
    dtype: torch.dtype, family: str
) -> None:
    model = tiny_encoder_decoder(family, dtype=dtype, scale=2.0)
    target = EncoderDecoderTarget(model, numerics="invariant")
    for mode in ("greedy", "sampled"):
        wanted = requests(mode)[:3]
        expected = [collect(Engine(target), [request])[0] for request in wanted]
        drafter = random_trees(VOCAB, knows=likely("t5"))
        for found, one in zip(
            collect(Engine(target, drafter, max_draft=7), wanted), expected, strict=True
        ):
            assert_same(found, one)
            assert found.logprobs == one.logprobs


def test_the_input_is_text_to_copy_from() -> None:
    """Its ids mean what the text's do, so that lookup drafters see it before the first token."""
    seen: list[tuple[int, ...]] = []

    class Noting(NgramDrafter):
        def begin(self, request: DraftRequest) -> NgramState:
            seen.append(request.context_ids)
            return super().begin(request)

    request = read_request(INPUTS[1], max_new_tokens=1)
    collect(Engine(shared_pair_target(), Noting(), max_draft=4), [request])
    assert seen == [INPUTS[1]]
