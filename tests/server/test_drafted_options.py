"""Options hold together while drafts are made in every round."""

from __future__ import annotations

from typing import Any

from serving import CONTEXT, byte_level_tokenizer, load_tiny, serving

import outrider
from outrider.decoder import Decoder
from outrider.drafters.model import ModelDrafter
from outrider.targets.transformers import TransformersTarget
from support.tiny import noisy_copy, tiny_model

MESSAGES = [{"role": "user", "content": "hi"}]
LENGTH = 40
IDS = 257


def load_drafted() -> Decoder:
    """Return the tiny model with a draft model that is often right, drafting in every round."""
    model = tiny_model(vocab_size=IDS, max_position_embeddings=CONTEXT)
    drafter = ModelDrafter(
        TransformersTarget(noisy_copy(model, 0.005)), vocab_size=IDS, shared_ids=IDS
    )
    tokenizer = byte_level_tokenizer()
    return outrider.load(model, tokenizer=tokenizer, drafter=drafter, max_draft=4, profile=False)


def test_all_options_of_a_request_are_honoured_at_drafted_positions() -> None:
    """SERVE-2, SERVE-11."""
    offline = load_tiny("none")
    sampled: dict[str, Any] = {"temperature": 0.9, "seed": 11, "n": 2}
    banned = max(offline.generate(MESSAGES, max_new_tokens=LENGTH, **sampled).token_ids)
    sampled |= {"min_p": 0.1, "presence_penalty": 0.5}
    options: dict[str, Any] = {"max_new_tokens": LENGTH, "logit_bias": {banned: -100.0}, **sampled}
    plain = offline.generate(MESSAGES, **options)
    stop = next(c for c in plain.text[8:] if c.isascii() and c.isprintable())
    expected = offline.generate(MESSAGES, stop=[stop], **options)
    fields = {"max_tokens": LENGTH, "stop": stop, "logit_bias": {str(banned): -100}, **sampled}
    with serving(load_drafted) as running:
        answer = running.chat(MESSAGES[0]["content"], **fields)
        refused = running.chat(foo=1, **fields)
        running.wait_idle()
        snapshot = running.service.snapshot
    said = [choice["message"]["content"] for choice in answer.json()["choices"]]
    assert said == [choice.text for choice in expected.choices]
    assert not any(stop in text for text in said)
    assert snapshot is not None and snapshot.accepted > 5
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "foo"
