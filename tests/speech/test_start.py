"""What a speech model's texts begin with is what its own `generate` puts there."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import PreTrainedModel

from outrider.errors import OptionError
from outrider.speech.start import SpeechStart
from support.speech import (
    DE,
    EN,
    FR,
    NO_TIMES,
    START,
    TRANSCRIBE,
    TRANSLATE,
    shared_whisper,
    speech_settings,
    tiny_whisper,
)


def start(model: PreTrainedModel | None = None) -> SpeechStart:
    return SpeechStart.of(shared_whisper() if model is None else model, START)


def with_settings(**changes: Any) -> SpeechStart:
    return start(tiny_whisper(settings=speech_settings(**changes)))


@pytest.mark.parametrize(
    ("language", "task", "ids"),
    [
        (None, None, (START, None, NO_TIMES)),
        ("de", None, (START, DE, TRANSCRIBE, NO_TIMES)),
        ("French", None, (START, FR, TRANSCRIBE, NO_TIMES)),
        ("<|de|>", "translate", (START, DE, TRANSLATE, NO_TIMES)),
        (None, "translate", (START, None, TRANSLATE, NO_TIMES)),
    ],
)
def test_a_language_and_a_task_each_have_a_token(
    language: str | None, task: str | None, ids: tuple[int | None, ...]
) -> None:
    assert start().ids(language, task) == ids


def test_a_model_may_have_wishes_of_its_own() -> None:
    assert with_settings(language="fr").ids(None, None) == (START, FR, TRANSCRIBE, NO_TIMES)
    assert with_settings(task="translate").ids(None, None) == (START, None, TRANSLATE, NO_TIMES)
    assert with_settings(language="fr").ids("en", None) == (START, EN, TRANSCRIBE, NO_TIMES)


def test_ids_that_older_configs_force_hold_where_nothing_is_asked_for() -> None:
    forced = with_settings(forced_decoder_ids=[[1, None], [2, TRANSLATE]])
    assert forced.ids(None, None) == (START, None, TRANSLATE, NO_TIMES)
    assert forced.ids("de", None) == (START, DE, TRANSCRIBE, NO_TIMES)
    fixed = with_settings(forced_decoder_ids=[[1, DE], [2, TRANSCRIBE], [3, NO_TIMES]])
    assert fixed.ids(None, None) == (START, DE, TRANSCRIBE, NO_TIMES)


def test_a_model_of_one_language_has_nothing_to_choose() -> None:
    settings = {"lang_to_id": None, "task_to_id": None, "is_multilingual": False}
    alone = with_settings(**settings, forced_decoder_ids=[[1, NO_TIMES]])
    assert alone.ids(None, None) == (START, NO_TIMES)
    for options in (("en", None), (None, "transcribe")):
        with pytest.raises(OptionError, match="leaves no choice of it"):
            alone.ids(*options)


@pytest.mark.parametrize(
    ("language", "task", "message"),
    [
        ("xx", None, "language is 'xx': expected one of en, de, fr"),
        ("spanish", None, "language is 'spanish': expected one of en, de, fr"),
        (None, "summarise", "task is 'summarise': expected transcribe or translate"),
    ],
)
def test_what_the_model_does_not_have_is_refused(
    language: str | None, task: str | None, message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        start().ids(language, task)


def test_forced_ids_with_a_gap_are_refused() -> None:
    with pytest.raises(OptionError, match="forced_decoder_ids"):
        with_settings(forced_decoder_ids=[[1, DE], [3, NO_TIMES]])
