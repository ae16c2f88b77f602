"""Encoder-decoders as targets: inputs kept with their sequences, distances of rows and trees."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.engine.engine import Engine
from outrider.engine.scoring import PromptScores
from outrider.engine.session import Session
from outrider.errors import OptionError, PromptError, UnsupportedModelError
from outrider.targets.base import Rows
from outrider.targets.encoder_decoder import EncoderDecoderTarget, start_ids
from outrider.targets.transformers import TransformersTarget
from outrider.types import DraftTree
from support.encoder_decoders import (
    FAMILIES,
    INPUTS,
    greedy_output,
    read_request,
    shared_pair,
    tiny_encoder_decoder,
)
from support.runs import collect
from support.tiny import random_ids, shared_model

TREE = DraftTree(random_ids(7, 5), (-1, 0, -1, 2, 2, 4, 0))
BRANCHES = ((0,), (0, 1), (2,), (2, 3), (2, 4), (2, 4, 5), (0, 6))


def whole(model: PreTrainedModel, input_ids: tuple[int, ...], text: tuple[int, ...]) -> Tensor:
    """Return the logits [T, V] that a model by itself has of a text about an input."""
    run: Any = model
    with torch.inference_mode():
        found: Tensor = run(
            input_ids=torch.tensor([input_ids]), decoder_input_ids=torch.tensor([text])
        ).logits[0]
    return found


def opened(target: EncoderDecoderTarget, input_ids: tuple[int, ...], room: int = 96) -> int:
    sequence = target.open(room)
    target.read(sequence, input_ids)
    return sequence


@pytest.mark.parametrize("family", FAMILIES)
def test_each_node_of_a_tree_is_as_far_from_its_ancestors_as_in_a_text(family: str) -> None:
    """T5's biases of distance and BART's positions alike, far beyond where distances differ."""
    model, text = shared_pair(family), (0, *random_ids(40, 3))
    target = EncoderDecoderTarget(model)
    sequence = opened(target, INPUTS[1])
    target.score([Rows(sequence, text[:30])])
    target.commit(sequence, ())
    (found,) = target.score([Rows(sequence, text[30:], TREE)]).logits
    for node, path in enumerate(BRANCHES):
        branch = (*text, *(TREE.tokens[one] for one in path))
        torch.testing.assert_close(found[node + 1], whole(model, INPUTS[1], branch)[-1])


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_sequences_of_other_lengths_and_inputs_share_a_pass(family: str) -> None:
    model = shared_pair(family)
    target = EncoderDecoderTarget(model)
    texts = [(0, *random_ids(3 * i, i)) for i in range(len(INPUTS))]
    sequences = [opened(target, input_ids) for input_ids in INPUTS]
    for sequence, text in zip(sequences, texts, strict=True):
        if text[:-1]:
            target.score([Rows(sequence, text[:-1])])
            target.commit(sequence, ())
    scored = target.score(
        [Rows(one, text[-1:], TREE) for one, text in zip(sequences, texts, strict=True)]
    )
    for found, input_ids, text in zip(scored.logits, INPUTS, texts, strict=True):
        torch.testing.assert_close(found[0], whole(model, input_ids, text)[-1])
        branch = (*text, *(TREE.tokens[one] for one in BRANCHES[-1]))
        torch.testing.assert_close(found[-1], whole(model, input_ids, branch)[-1])


def test_an_input_stays_with_its_sequence_when_others_end() -> None:
    target = EncoderDecoderTarget(shared_pair())
    first, second, third = (opened(target, input_ids) for input_ids in INPUTS[:3])
    target.close(first)
    fourth = opened(target, INPUTS[3])
    for sequence, input_ids in ((third, INPUTS[2]), (second, INPUTS[1]), (fourth, INPUTS[3])):
        (found,) = target.score([Rows(sequence, (0, 5))]).logits
        torch.testing.assert_close(found[0], whole(shared_pair(), input_ids, (0, 5))[-1])


def test_an_input_leaves_no_trace_in_the_next_one() -> None:
    """A longer one before it, and a sequence that is read anew."""
    target = EncoderDecoderTarget(shared_pair("bart"))
    sequence = opened(target, INPUTS[1])
    target.read(sequence, INPUTS[0])
    (found,) = target.score([Rows(sequence, (0, 5))]).logits
    torch.testing.assert_close(found[0], whole(shared_pair("bart"), INPUTS[0], (0, 5))[-1])


def test_the_encoder_runs_once_a_request() -> None:
    model = tiny_encoder_decoder()
    target = EncoderDecoderTarget(model)
    read: list[int] = []
    encoder: Any = model.get_encoder()
    encoder.register_forward_hook(lambda *_: read.append(1))
    collect(Engine(target), [read_request(ids, max_new_tokens=9) for ids in INPUTS])
    assert len(read) == len(INPUTS)


def test_what_an_input_takes_of_memory_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    target = EncoderDecoderTarget(shared_pair())
    target.require_room(1, 8, 1)
    monkeypatch.setattr("outrider.targets.memory.available_memory", lambda device: 1_000_000)
    target.require_room(1, 8, 1)
    with pytest.raises(OptionError, match="for what is read"):
        target.require_room(1, 8, 1, 100_000)


def test_the_model_is_left_as_it_was() -> None:
    model = tiny_encoder_decoder()
    before = model.config._attn_implementation
    target = EncoderDecoderTarget(model)
    opened(target, INPUTS[0])
    assert model.config._attn_implementation == before
    assert torch.equal(
        whole(model, INPUTS[0], (0, 1)), whole(tiny_encoder_decoder(), INPUTS[0], (0, 1))
    )


# -- what is refused ------------------------------------------------------------------------------


def test_a_sequence_whose_input_was_not_read_is_not_scored() -> None:
    target = EncoderDecoderTarget(shared_pair())
    sequence = target.open(8)
    with pytest.raises(ValueError, match="before its input is read"):
        target.score([Rows(sequence, (0,))])


def test_an_input_is_not_changed_under_a_text() -> None:
    target = EncoderDecoderTarget(shared_pair())
    sequence = opened(target, INPUTS[0])
    target.score([Rows(sequence, (0,))])
    target.commit(sequence, ())
    with pytest.raises(ValueError, match="1 tokens of text already"):
        target.read(sequence, INPUTS[1])


@pytest.mark.parametrize(
    ("input_ids", "message"),
    [
        ((), "the input is empty"),
        (random_ids(129), "the input has 129 tokens; the encoder reads 128"),
        ((5, 64), "input id 64 is outside the vocabulary 0..63"),
    ],
)
def test_an_input_that_cannot_be_read_is_refused_before_any_work(
    input_ids: tuple[int, ...], message: str
) -> None:
    engine = Engine(EncoderDecoderTarget(shared_pair("bart")))
    with pytest.raises(PromptError, match=message):
        collect(engine, [read_request(input_ids)])


def test_an_input_and_an_encoder_need_each_other() -> None:
    target = EncoderDecoderTarget(shared_pair())
    request = read_request(INPUTS[0])
    with pytest.raises(PromptError, match="no encoder to read it"):
        collect(Engine(TransformersTarget(shared_model())), [request])
    bare = read_request(INPUTS[0])
    object.__setattr__(bare, "input", None)
    with pytest.raises(PromptError, match="no input for it to read"):
        collect(Engine(target), [bare])


def test_a_session_of_a_target_that_reads_inputs_is_refused() -> None:
    target = EncoderDecoderTarget(shared_pair())
    request = read_request(INPUTS[0])
    object.__setattr__(request, "session", Session(target))
    with pytest.raises(OptionError, match="session is given"):
        collect(Engine(target), [request])


def test_what_an_encoder_reads_has_no_log_probabilities() -> None:
    request = read_request(INPUTS[0])
    object.__setattr__(request, "scores", PromptScores())
    with pytest.raises(OptionError, match="EncoderDecoderTarget gives none"):
        collect(Engine(EncoderDecoderTarget(shared_pair())), [request])


def test_each_kind_of_model_has_its_own_target() -> None:
    with pytest.raises(UnsupportedModelError, match="is an encoder-decoder model"):
        TransformersTarget(shared_pair())
    with pytest.raises(UnsupportedModelError, match="is no encoder-decoder model"):
        EncoderDecoderTarget(shared_model())


def test_what_takes_a_decoder_apart_is_refused_by_name() -> None:
    target = EncoderDecoderTarget(shared_pair())
    with pytest.raises(UnsupportedModelError, match="no early exit"):
        target.exit_at(1)
    with pytest.raises(UnsupportedModelError, match="no heads"):
        target.prepare((1,))


def test_passes_that_are_to_be_compiled_stay_eager_with_a_line_that_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "outrider"):
        target = EncoderDecoderTarget(shared_pair(), compile=True)
    assert not target.is_compiled
    assert "passes run eagerly: encoder-decoder models are not compiled" in caplog.text


def test_a_model_with_no_place_to_start_from_is_refused() -> None:
    model = tiny_encoder_decoder()
    model.generation_config.decoder_start_token_id = None
    model.config.decoder_start_token_id = None
    with pytest.raises(UnsupportedModelError, match="decoder_start_token_id"):
        EncoderDecoderTarget(model)


def test_a_forced_first_id_begins_each_text() -> None:
    """mBART's language, for one; it is part of the prompt and counts as no new token."""
    model = tiny_encoder_decoder("mbart")
    model.generation_config.forced_bos_token_id = 9
    assert start_ids(model) == (0, 9)
    target = EncoderDecoderTarget(model)
    request = read_request(INPUTS[0], prompt_ids=target.prompt_ids, max_new_tokens=7)
    (found,) = collect(Engine(target), [request])
    assert [9, *found.token_ids] == greedy_output(model, INPUTS[0], 8)
