"""A prompt becomes ids once; what is drafted goes on from those ids, never from text read anew."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from outrider import Decoder, load
from outrider.prompts import encode_prompt
from outrider.types import DraftTree
from support.files import word_tokenizer
from support.scripted import ScriptedDrafter
from support.tiny import shared_model

BOS = 1
TEXT = "w7 w8 w9 w7 w8"


def beginning_tokenizer() -> PreTrainedTokenizerFast:
    """Return the word tokenizer, which now puts a beginning before every text it reads."""
    tokenizer = word_tokenizer()
    backend: Any = tokenizer.backend_tokenizer
    backend.post_processor = TemplateProcessing(single="w1 $A", special_tokens=[("w1", BOS)])
    tokenizer.bos_token = "w1"
    tokenizer.chat_template = "w1 {% for m in messages %}{{ m.content }} {% endfor %}"
    return tokenizer


@pytest.mark.parametrize("chat", [False, True])
def test_a_text_has_one_beginning_however_it_is_read(chat: bool) -> None:
    ids = encode_prompt(TEXT, beginning_tokenizer(), chat=chat)
    assert ids == (BOS, 7, 8, 9, 7, 8)


def test_no_round_of_drafts_adds_a_beginning() -> None:
    """VOCAB-3: neither the text that a drafter has seen nor a predicted one begins again."""
    seen: list[tuple[int, ...]] = []

    def propose(context: tuple[int, ...], budget: int) -> DraftTree:
        seen.append(context)
        return DraftTree.chain([9, 7][:budget])

    decoder: Decoder = load(
        shared_model(),
        tokenizer=beginning_tokenizer(),
        drafter=[ScriptedDrafter(propose)],
        max_draft=2,
        profile=False,
    )
    result = decoder.generate(TEXT, max_new_tokens=9, logit_bias={BOS: -100.0})
    assert len(seen) >= 3
    for context in seen:
        assert context == (*result.prompt_ids, *result.token_ids)[: len(context)]
        assert context.count(BOS) == 1
    (request,) = decoder.requests(TEXT, prediction="w9 w10")
    assert request.prediction_ids == (9, 10)
