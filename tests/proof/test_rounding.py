"""What rounding may excuse: no more than it was seen to do at that very position."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from outrider.engine.engine import Engine
from outrider.proof.rounding import WAYS, Place, margin, measure_rounding, most_apart
from outrider.sampling.params import SamplingParams
from outrider.targets.transformers import TransformersTarget
from support.encoder_decoders import INPUTS, read_request, shared_pair_target
from support.proving import shake
from support.runs import collect, make_request
from support.scripted import ScriptedTarget
from support.tiny import random_ids, shared_model, tiny_model

PROMPT = random_ids(7, 1)
TARGET = ScriptedTarget(lambda _: [0.0] * 4, 4)


def place(**options: Any) -> Place:
    return Place((1, 2), (), SamplingParams(**options), 0, ())


@pytest.mark.parametrize("length", [0, 1, 3, 4, 7, 8, 15, 16, 17])
def test_every_width_works_out_the_same_row(length: int) -> None:
    """In float64 rounding is far too small to hide a row that is another's."""
    output = random_ids(length, 2)
    target = TransformersTarget(shared_model())
    found = measure_rounding(target, PROMPT, output)
    ids = torch.tensor([[*PROMPT, *output]])
    expected = shared_model()(input_ids=ids, use_cache=False).logits[0, -1].detach()
    assert most_apart(found.logits, expected) < 1e-12
    assert found.noise < 1e-12
    assert not target._sequences


def test_the_first_way_has_the_bits_of_plain_decoding() -> None:
    target = TransformersTarget(tiny_model(dtype=torch.float32))
    assert WAYS[0] == (1, 1)
    (result,) = collect(Engine(target), [make_request(PROMPT, max_new_tokens=9, logprobs=1)])
    rows = [measure_rounding(target, PROMPT, result.token_ids[:at]).logits for at in range(9)]
    logprobs = [row.log_softmax(-1).max() for row in rows]
    assert [float(value) for value in logprobs] == [
        record.top[0][1] for record in result.logprobs or ()
    ]


def test_an_answer_up_to_the_end_of_the_context_can_be_measured() -> None:
    target = TransformersTarget(tiny_model(max_position_embeddings=24))
    room = target.max_positions - len(PROMPT) - 1
    assert measure_rounding(target, PROMPT, random_ids(room, 3)).noise < 1e-12


def test_a_pass_that_moves_logits_is_measured_whatever_its_width() -> None:
    for width in (2, 4, 8, 16):
        target = TransformersTarget(shared_model())
        shake(target, 0.01, only=width)
        assert 0.01 < measure_rounding(target, PROMPT, random_ids(12, 2)).noise < 0.2, width


def test_equal_infinities_are_not_apart() -> None:
    row = torch.tensor([1.0, -torch.inf])
    assert most_apart(row, row.clone()) == 0
    assert most_apart(row, torch.tensor([1.0, 2.0])) == torch.inf


def test_the_margin_of_greedy_decoding_is_the_distance_of_the_logits() -> None:
    logits = torch.tensor([1.0, 4.0, 3.25, 0.0], dtype=torch.float64)
    assert margin(TARGET, place(), logits, 1, 2) == pytest.approx(0.75)
    assert margin(TARGET, place(), logits, 1, 0) == pytest.approx(3.0)


def test_the_margin_counts_what_options_make_of_the_logits() -> None:
    logits = torch.tensor([1.0, 4.0, 3.25, 0.0], dtype=torch.float64)
    biased = place(logit_bias={2: 0.5})
    assert margin(TARGET, biased, logits, 1, 2) == pytest.approx(0.25)
    banned = place(logit_bias={2: float("-inf")})
    assert margin(TARGET, banned, logits, 1, 2) is None


def test_the_margin_of_a_draw_is_that_of_the_scores_that_are_compared() -> None:
    """Twice the temperature, twice the logits it takes to make up for the noise."""
    logits = torch.zeros(4, dtype=torch.float64)
    for seed in range(5):
        drawn = replace(place(temperature=1.0), seed=seed)
        plain = drawn.choose(TARGET, logits)
        other = (plain + 1) % 4
        single = margin(TARGET, drawn, logits, plain, other)
        double = margin(TARGET, replace(place(temperature=2.0), seed=seed), logits, plain, other)
        assert single is not None and double is not None
        assert double == pytest.approx(2 * single)


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"top_k": 2}, 0.5), ({"min_p": 0.5}, 0.5 - 0.375)],
    ids=["top_k", "min_p"],
)
def test_a_token_just_beyond_a_filter_is_as_far_as_the_filter(
    options: dict[str, Any], expected: float
) -> None:
    """What wins the race but was cut off needs only to pass the cut."""
    cut = 0.5 * 0.6931471805599453 * 2 if "min_p" in options else 2.0
    logits = torch.tensor([4.0, 4.0, 4.0 - cut - expected, 0.0], dtype=torch.float64)
    if "top_k" in options:
        logits[1] = logits[2] + expected
    for seed in range(40):
        at = replace(place(temperature=1.0, **options), seed=seed)
        free = replace(place(temperature=1.0), seed=seed)
        if free.choose(TARGET, logits) == 2:
            plain = at.choose(TARGET, logits)
            assert plain != 2
            found = margin(TARGET, at, logits, plain, 2)
            assert found == pytest.approx(expected, abs=1e-9)
            return
    raise AssertionError("no seed draws the token")


def test_a_token_that_is_not_what_plain_decoding_says_has_no_margin() -> None:
    logits = torch.tensor([1.0, 4.0, 3.25, 0.0], dtype=torch.float64)
    assert margin(TARGET, place(), logits, 2, 0) is None


def test_an_exact_tie_has_no_margin_to_speak_of() -> None:
    """Ties go to the lowest id: the other token is any distance away, however small."""
    logits = torch.tensor([4.0, 4.0, 0.0, 0.0], dtype=torch.float64)
    found = margin(TARGET, place(), logits, 0, 1)
    assert found is not None and found < 1e-9


def test_the_logits_of_an_encoder_decoder_are_about_its_own_input() -> None:
    target = shared_pair_target()
    (result,) = collect(Engine(target), [read_request(INPUTS[1], max_new_tokens=9)])
    found = measure_rounding(target, (0,), result.token_ids[:5], input_ids=INPUTS[1])
    assert int(found.logits.argmax()) == result.token_ids[5]
    other = measure_rounding(target, (0,), result.token_ids[:5], input_ids=INPUTS[2])
    assert most_apart(found.logits, other.logits) > 1e-3
    assert found.noise < 1e-9
