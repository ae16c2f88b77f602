"""Speculation never changes what a speech model says of a recording, whoever drafts and how."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from outrider.assembly import load
from outrider.decoder import Decoder
from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.encoder_decoder import EncoderDecoderDrafter
from outrider.drafters.ngram import NgramDrafter, NgramState
from outrider.drafters.prediction import PredictionDrafter
from outrider.drafters.suffix import SuffixDrafter
from outrider.engine.result import Result
from outrider.targets.speech import SpeechTarget
from outrider.types import Numerics, Rule
from support.runs import assert_same
from support.scripted import always, silent
from support.speech import (
    DE,
    NOT_FIRST,
    SOUNDS,
    SUPPRESSED,
    greedy_speech,
    shared_whisper,
    speech_settings,
    tiny_whisper,
)
from support.tiny import VOCAB, noisy_copy

COUNT = 24
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "penalised": {"repetition_penalty": 1.5, "language": "fr"},
    "sampled": {"temperature": 1.0, "seed": 11, "task": "translate"},
    "filtered": {"temperature": 0.7, "top_k": 20, "repetition_penalty": 1.2, "seed": 4},
}


@functools.cache
def plain_decoder() -> Decoder:
    return load(shared_whisper(), profile=False)


def answers(decoder: Decoder, mode: str, **options: Any) -> list[Result]:
    """Return what is said of all recordings in one batch."""
    wanted = {"max_new_tokens": COUNT, "logprobs": 2} | MODES[mode] | options
    return decoder.generate_batch(SOUNDS, **wanted)


@functools.cache
def plain(mode: str) -> list[Result]:
    return answers(plain_decoder(), mode)


@functools.cache
def _beside(kind: str) -> SpeechTarget:
    target = plain_decoder().engine.target
    assert isinstance(target, SpeechTarget)
    if kind == "shared":  # a decoder of its own behind the target's encoder
        model: Any = tiny_whisper(seed=3, decoder_layers=1)
        model.model.encoder.load_state_dict(target.model.get_encoder().state_dict())
        return SpeechTarget.beside(target, model, None)
    if kind == "noisy":
        return SpeechTarget.beside(target, noisy_copy(shared_whisper(), 0.02), None)
    if kind == "exact":
        return SpeechTarget.beside(target, tiny_whisper(), None)
    return SpeechTarget(tiny_whisper(seed=7, decoder_layers=1))


def draft(kind: str, **options: Any) -> EncoderDecoderDrafter:
    return EncoderDecoderDrafter(_beside(kind), vocab_size=VOCAB, shared_ids=VOCAB, **options)


DRAFTERS: dict[str, Callable[[], Drafter[Any]]] = {
    "ngram": lambda: NgramDrafter(min_ngram=1),
    "suffix": lambda: SuffixDrafter(max_shared_tokens=64),
    "prediction": PredictionDrafter,
    "unrelated": lambda: draft("unrelated"),
    "shared": lambda: draft("shared"),
    "noisy": lambda: draft("noisy"),
    "noisy tree": lambda: draft("noisy", width=3),
    "exact": lambda: draft("exact"),
    "stubborn": lambda: always(3),
    "silent": silent,
}


@pytest.mark.parametrize(
    "asked",
    [{}, {"language": "de"}, {"task": "translate"}, {"language": "fr", "task": "translate"}],
)
def test_plain_decoding_says_what_transformers_says(asked: dict[str, str]) -> None:
    model = shared_whisper()
    found = answers(plain_decoder(), "greedy", **asked)
    wanted = [greedy_speech(model, sound, max_new_tokens=COUNT, **asked) for sound in SOUNDS]
    assert [list(result.token_ids) for result in found] == wanted
    assert len(set(map(tuple, wanted))) == len(SOUNDS), "texts that do not follow their sounds"
    if not asked:
        assert len({result.prompt_ids[1] for result in found}) > 1, "one language teaches nothing"


def test_a_text_goes_on_to_the_end_of_what_the_model_holds() -> None:
    """Whisper's own limit is all that ends a text early, where the user sets none."""
    sound = SOUNDS[0]
    found = plain_decoder().generate(sound)
    assert list(found.token_ids) == greedy_speech(shared_whisper(), sound, max_length=64)
    assert len(found.prompt_ids) + len(found.token_ids) == 64


def test_a_text_ends_where_the_model_ends_it() -> None:
    ending = plain("greedy")[0].token_ids[5]
    model = tiny_whisper(settings=speech_settings(eos_token_id=ending))
    found = load(model, drafter="suffix", profile=False).generate(SOUNDS[0])
    assert found.finish_reason == "stop" and found.token_ids[-1] == ending
    # Transformers leaves the end itself out.
    assert list(found.token_ids[:-1]) == greedy_speech(model, SOUNDS[0])


def test_suppressed_tokens_are_said_nowhere_and_others_not_first() -> None:
    free = tiny_whisper(settings=speech_settings(suppress_tokens=None, begin_suppress_tokens=None))
    loose = [greedy_speech(free, sound, max_new_tokens=COUNT) for sound in SOUNDS]
    assert any(set(ids) & set(SUPPRESSED) for ids in loose), "nothing to suppress"
    assert any(ids[0] in NOT_FIRST for ids in loose), "nothing to keep from the beginning"
    engines = [plain_decoder(), *(using(name) for name in ("stubborn", "exact"))]
    for decoder in engines:
        for result in answers(decoder, "greedy"):
            assert not set(result.token_ids) & set(SUPPRESSED)
            assert result.token_ids[0] not in NOT_FIRST


def test_a_draft_of_suppressed_tokens_is_not_accepted() -> None:
    for token in (SUPPRESSED[0], NOT_FIRST[0]):
        decoder = plain_decoder().using([always(token)], max_draft=3)
        for result, expected in zip(answers(decoder, "greedy"), plain("greedy"), strict=True):
            assert_same(result, expected)


def using(name: str, *, rule: Rule = "match", max_draft: int = 5) -> Decoder:
    return plain_decoder().using([DRAFTERS[name]()], rule=rule, max_draft=max_draft)


def hints() -> list[tuple[int, ...]]:
    """Return predictions that are a third wrong, as a user's would be."""
    return [
        tuple(DE if i % 7 == 5 else token for i, token in enumerate(result.token_ids))
        for result in plain("greedy")
    ]


@pytest.mark.parametrize(("mode", "max_draft"), [("greedy", 7), ("sampled", 1), ("filtered", 3)])
@pytest.mark.parametrize("name", DRAFTERS)
def test_no_drafter_changes_anything_at_any_draft_length(
    name: str, mode: str, max_draft: int
) -> None:
    options = {"predictions": hints()} if name == "prediction" else {}
    found = answers(using(name, max_draft=max_draft), mode, **options)
    for result, expected in zip(found, plain(mode), strict=True):
        assert_same(result, expected)
        assert result.stats.drafter_error is None
    if name in ("noisy", "noisy tree", "prediction") and mode == "greedy":
        assert sum(result.stats.accepted for result in found) > 0
    if name == "exact" and mode == "sampled":  # drafts know of no suppressed tokens
        assert sum(result.stats.accepted for result in found) > COUNT


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal"])
@pytest.mark.parametrize("name", ["ngram", "shared", "exact"])
def test_greedy_decoding_is_the_same_under_the_rules_that_reject(rule: Rule, name: str) -> None:
    found = answers(using(name, rule=rule), "greedy")
    for result, expected in zip(found, plain("greedy"), strict=True):
        assert_same(result, expected)


@pytest.mark.parametrize("mode", ["greedy", "sampled"])
def test_a_recording_is_heard_the_same_alone_and_among_others(mode: str) -> None:
    options = {"max_new_tokens": COUNT, "logprobs": 2} | MODES[mode]
    for sound, expected in zip(SOUNDS, plain(mode), strict=True):
        assert_same(plain_decoder().generate(sound, **options), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_invariant_numerics_make_low_precision_identical_too(dtype: torch.dtype) -> None:
    numerics: Numerics = "invariant"
    model = tiny_whisper(dtype=dtype)
    decoder = load(model, numerics=numerics, profile=False)
    for mode in ("greedy", "sampled"):
        options = {"max_new_tokens": 12, "logprobs": 2} | MODES[mode]
        wanted = [decoder.generate(sound, **options) for sound in SOUNDS[:2]]
        drafting = decoder.using([SuffixDrafter(max_shared_tokens=64)], max_draft=7)
        for found, one in zip(drafting.generate_batch(SOUNDS[:2], **options), wanted, strict=True):
            assert_same(found, one)
            assert found.logprobs == one.logprobs


def test_there_is_no_text_to_copy_from_a_recording() -> None:
    seen: list[tuple[int, ...]] = []

    class Noting(NgramDrafter):
        def begin(self, request: DraftRequest) -> NgramState:
            seen.append(request.context_ids)
            return super().begin(request)

    plain_decoder().using([Noting()], max_draft=4).generate(SOUNDS[0], max_new_tokens=1)
    assert seen == [()]
