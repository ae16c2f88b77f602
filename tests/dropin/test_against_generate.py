"""With outrider in its loop `generate` returns what it returns by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

import outrider
from outrider.dropin.custom_generate import CustomGenerate
from outrider.targets.transformers import TransformersTarget
from support.files import word_tokenizer
from support.generating import (
    EVERYTHING,
    FAMILIES,
    PAD,
    assert_same_output,
    both,
    copying,
    ending,
    family,
    knowing,
    prompts,
)
from support.tiny import shared_model


@pytest.mark.parametrize("name", FAMILIES)
def test_one_prompt_of_any_family_goes_on_as_by_itself(name: str) -> None:
    for options in ({}, EVERYTHING):
        expected, found = both(family(name), prompts(7), copying(), **options)
        assert_same_output(found, expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_ragged_prompts_that_end_apart_are_padded_and_scored_as_by_themselves(name: str) -> None:
    """Rows that have ended have scores, too: what the model says after their padding."""
    inputs = prompts(3, 9, 5)
    plain, _ = both(family(name), inputs, copying(), max_new_tokens=24)
    eos = ending(plain[:, inputs["input_ids"].shape[1] :])
    expected, found = both(
        family(name), inputs, copying(), max_new_tokens=24, eos_token_id=[eos, 62], **EVERYTHING
    )
    assert (expected.sequences[:, -4:] == PAD).all(-1).sum() in (1, 2)
    assert_same_output(found, expected)


def passes_of(custom: CustomGenerate, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many passes 32 tokens take, which must be those of `generate`."""
    passes = []
    score = TransformersTarget.score

    def counted(self: TransformersTarget, *args: Any, **options: Any) -> Any:
        passes.append(self.model)
        return score(self, *args, **options)

    model = shared_model()
    both(model, prompts(6), custom)  # wrapping takes passes of its own
    monkeypatch.setattr(TransformersTarget, "score", counted)
    expected, found = both(model, prompts(6), custom, max_new_tokens=32)
    assert_same_output(found, expected)
    alias = custom._decoders[model].loaded.model
    return sum(one is alias for one in passes)


def test_drafts_save_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert passes_of(knowing(), monkeypatch) < 24


def test_a_predicted_text_is_drafted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text, _ = both(shared_model(), prompts(6), knowing(), max_new_tokens=32)
    file = tmp_path / "text.txt"
    file.write_text(" ".join(f"w{token}" for token in text[0, 12:].tolist()))
    custom = outrider.custom_generate(
        drafter=f"prediction:{file}", max_draft=8, tokenizer=word_tokenizer()
    )
    assert passes_of(custom, monkeypatch) <= 6


class Shift(LogitsProcessor):
    """Favours a token that depends on the prefix, padding included."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        scores = scores.clone()
        favoured = (input_ids.sum(-1) + input_ids.shape[1]) % scores.shape[1]
        return scores.scatter_add(1, favoured[:, None], torch.full_like(scores[:, :1], 3.0))


class ByPlace(LogitsProcessor):
    """Bans another token in each row of the batch."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        for row in range(len(scores)):
            scores[row, 5 + row] = -torch.inf
        return scores


def after(_: int, ids: Tensor) -> list[int]:
    """Allow tokens of the other parity than the last."""
    return list(range(1 - int(ids[-1]) % 2, 64, 2))


def below(prompt: int, ids: Tensor) -> list[int]:
    """Allow other tokens after each prompt, which must be the one that the number says."""
    assert ids[:18].tolist() == prompts(4, 9, 6)["input_ids"][prompt].tolist()
    return [list(range(1, 30)), list(range(20, 60)), list(range(40, 64))][prompt]


PROCESSED: dict[str, dict[str, Any]] = {
    "repetition_penalty": {"repetition_penalty": 1.7},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "bad_words_ids": {"bad_words_ids": [[9], [3, 4], [50]], "eos_token_id": 63},
    "sequence_bias": {"sequence_bias": {(5,): 4.0, (7, 8): 2.0}},
    "min_new_tokens": {"min_new_tokens": 9, "eos_token_id": list(range(30, 64))},
    "min_length": {"min_length": 20, "eos_token_id": list(range(30, 64))},
    "suppress": {"suppress_tokens": [3, 5, 9], "begin_suppress_tokens": [1, 7]},
    "forced_eos": {"forced_eos_token_id": 11, "eos_token_id": 11},
    "decay": {"exponential_decay_length_penalty": (3, 1.6), "eos_token_id": 12},
    "normalised": {"renormalize_logits": True, "remove_invalid_values": True},
    "encoder": {"encoder_no_repeat_ngram_size": 1, "encoder_repetition_penalty": 1.3},
    "prefix": {"prefix_allowed_tokens_fn": after},
    "custom": {"logits_processor": LogitsProcessorList([Shift()])},
    "several": {
        "logits_processor": LogitsProcessorList([Shift(), ByPlace()]),
        "repetition_penalty": 0.8,
        "no_repeat_ngram_size": 3,
        "eos_token_id": [40, 41, 42, 43],
    },
}


@pytest.mark.parametrize("lengths", [(6,), (4, 9, 6)])
@pytest.mark.parametrize("name", PROCESSED)
def test_every_processor_acts_on_drafted_positions_as_in_generate(
    name: str, lengths: tuple[int, ...]
) -> None:
    expected, found = both(
        shared_model(), prompts(*lengths), knowing(), **EVERYTHING, **PROCESSED[name]
    )
    assert_same_output(found, expected)


def test_a_constraint_by_prompt_is_asked_for_its_own_prompt_alone() -> None:
    expected, found = both(
        shared_model(), prompts(4, 9, 6), knowing(), prefix_allowed_tokens_fn=below
    )
    assert_same_output(found, expected)


def test_a_watermark_is_the_same() -> None:
    from transformers import WatermarkingConfig

    mark = WatermarkingConfig(bias=2.5, seeding_scheme="lefthash")
    expected, found = both(shared_model(), prompts(4, 6), knowing(), watermarking_config=mark)
    assert_same_output(found, expected)


@pytest.mark.parametrize(
    "options",
    [
        {"max_new_tokens": None, "max_length": 25},
        {"max_new_tokens": 1},
        {"use_cache": False},
        {"cache_implementation": "dynamic"},
        {"return_dict_in_generate": True},
        {"return_dict_in_generate": True, "output_scores": True},
        {"return_dict_in_generate": True, "output_logits": True, "temperature": 1.0},
        {"output_scores": True, "output_attentions": True},
    ],
)
def test_options_of_the_call_mean_what_they_mean_in_generate(options: dict[str, Any]) -> None:
    expected, found = both(shared_model(), prompts(4, 9), knowing(), **options)
    assert_same_output(found, expected)


def test_no_mask_and_no_padding_are_fine() -> None:
    inputs = {"input_ids": prompts(8)["input_ids"]}
    assert_same_output(*reversed(both(shared_model(), inputs, knowing(), **EVERYTHING)))


def test_tokens_hidden_within_a_prompt_count_for_processors_and_for_nothing_else() -> None:
    """Transformers works a mask out from pad ids in the text where it is given none."""
    ids = prompts(8)["input_ids"]
    ids[0, 5] = 0
    for inputs in ({"input_ids": ids}, {"input_ids": ids, "attention_mask": (ids != 0).long()}):
        expected, found = both(
            shared_model(), inputs, knowing(), **EVERYTHING, no_repeat_ngram_size=2
        )
        assert_same_output(found, expected)


def test_float32_and_bfloat16_models_give_float32_scores() -> None:
    from support.tiny import tiny_model

    for dtype in (torch.float32, torch.bfloat16):
        model = tiny_model(dtype=dtype)
        _, found = both(model, prompts(4, 6), copying(), **EVERYTHING, repetition_penalty=1.2)
        assert {step.dtype for step in (*found.scores, *found.logits)} == {torch.float32}
        for step, logits in enumerate(found.scores):
            assert found.sequences[:, 12 + step].tolist() == logits.argmax(-1).tolist()
