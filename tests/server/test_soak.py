"""The soak recipe, short and on the tiny model: nothing fails, nothing stays, all is exact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from serving import CONTEXT, byte_level_tokenizer

import outrider
from outrider.decoder import Decoder
from support.recipes import recipe_module
from support.tiny import tiny_model


@pytest.fixture
def recipe() -> Iterator[Any]:
    with recipe_module("serve_soak") as module:
        yield module


@pytest.fixture
def decoder() -> Decoder:
    model = tiny_model(vocab_size=257, max_position_embeddings=CONTEXT)
    tokenizer = byte_level_tokenizer()
    assert model.generation_config is not None
    model.generation_config.eos_token_id = tokenizer.eos_token_id  # or no format could end
    drafter = "suffix,ngram,prediction"
    options: dict[str, Any] = {"max_batch": 4, "max_draft": 4, "profile": False}
    return outrider.load(model, tokenizer=tokenizer, drafter=drafter, **options)


def options(recipe: Any, **changes: Any) -> Any:
    found = recipe.parser().parse_args([])
    small = {
        "requests": 60,
        "tokens": 12,
        "max_prompt_tokens": 120,
        "prefill_rows": 16,
        "letters": 30,
        "prefix_caches": 3,
        "at_once": 12,
    }
    vars(found).update(small | changes)
    return found


def test_nothing_fails_stays_or_differs_under_random_requests(
    recipe: Any, decoder: Decoder
) -> None:
    report = recipe.soak(decoder, options(recipe))
    assert report["faults"] == []
    assert report["requests"] == 60 and report["compared"] > 30
    assert len(report["statuses"]) == 7
    assert set(report["statuses"]["cut"]) == {"gone"}


def test_the_soak_sees_a_wrong_answer_and_a_sequence_that_stays(
    recipe: Any, decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from outrider.engine.prefixes import Prefix
    from outrider.server.answers import Answer

    monkeypatch.setattr(Prefix, "close", lambda prefix: None)
    monkeypatch.setattr(Answer, "text", property(lambda answer: "".join(answer.texts)[:3]))
    report = recipe.soak(decoder, options(recipe, requests=24, prefix_caches=0))
    assert any("sequences are open" in fault for fault in report["faults"])
    assert any("not '" in fault for fault in report["faults"])
