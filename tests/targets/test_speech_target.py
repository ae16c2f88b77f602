"""Speech models as targets: recordings heard once, positions of trees, encoders that are shared."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.assembly import load
from outrider.drafters.encoder_decoder import EncoderDecoderDrafter
from outrider.errors import OptionError, PromptError, UnsupportedModelError
from outrider.targets.base import Rows
from outrider.targets.encoder_decoder import EncoderDecoderTarget
from outrider.targets.hearing import same_encoder
from outrider.targets.speech import SpeechTarget
from outrider.types import DraftTree, Recording
from support.encoder_decoders import shared_pair
from support.speech import (
    DE,
    EN,
    FR,
    SOUNDS,
    START,
    count_hearings,
    extractor,
    features,
    recording,
    shared_whisper,
    tiny_whisper,
)
from support.tiny import VOCAB, random_ids

TREE = DraftTree(random_ids(7, 5), (-1, 0, -1, 2, 2, 4, 0))
BRANCHES = ((0,), (0, 1), (2,), (2, 3), (2, 4), (2, 4, 5), (0, 6))


def whole(model: PreTrainedModel, sound: Tensor, text: tuple[int, ...]) -> Tensor:
    """Return the logits [T, V] that a model by itself has of a text about a sound."""
    run: Any = model
    with torch.inference_mode():
        found: Tensor = run(
            input_features=features(sound, model), decoder_input_ids=torch.tensor([text])
        ).logits[0]
    return found


def with_encoder_of(model: PreTrainedModel, **options: Any) -> PreTrainedModel:
    """Return a model with a decoder of its own behind another one's encoder: a distilled one."""
    distilled: Any = tiny_whisper(seed=3, decoder_layers=1, **options)
    distilled.model.encoder.load_state_dict(model.get_encoder().state_dict())
    found: PreTrainedModel = distilled
    return found


def drafting(target: SpeechTarget, draft: SpeechTarget) -> list[EncoderDecoderDrafter]:
    return [EncoderDecoderDrafter(draft, vocab_size=target.vocab_size, shared_ids=VOCAB)]


def test_each_node_of_a_tree_stands_where_it_would_in_a_text() -> None:
    model, text = shared_whisper(), (START, *random_ids(40, 3))
    target = SpeechTarget(model)
    sequences = [target.open(64) for _ in SOUNDS[:3]]
    for index, sequence in enumerate(sequences):
        target.read(sequence, recording(index))
        length = 10 * (index + 1)  # ragged, in one pass
        target.score([Rows(sequence, text[:length])])
        target.commit(sequence, ())
    scored = target.score(
        [
            Rows(sequence, text[10 * (i + 1) : 10 * (i + 1) + 2], TREE)
            for i, sequence in enumerate(sequences)
        ]
    )
    for index, logits in enumerate(scored.logits):
        for node, path in enumerate(BRANCHES):
            branch = (*text[: 10 * (index + 1) + 2], *(TREE.tokens[one] for one in path))
            expected = whole(model, SOUNDS[index], branch)[-1]
            torch.testing.assert_close(logits[node + 1], expected)


def test_the_language_that_is_heard_is_the_one_transformers_hears() -> None:
    model: Any = shared_whisper()
    target = SpeechTarget(model)
    wanted = [model.detect_language(features(sound, model)).item() for sound in SOUNDS]
    found = [target.detect_language(Recording(sound), (FR, EN, DE)) for sound in SOUNDS]
    assert found == wanted and len(set(wanted)) > 1


# -- each recording is heard once -----------------------------------------------------------------


def test_a_recording_is_heard_once_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """For its language, its text, each of several choices, and a draft model that shares."""
    model = tiny_whisper()
    target = SpeechTarget(model)
    draft = SpeechTarget.beside(target, with_encoder_of(model), None)
    heard = count_hearings(model)
    decoder = load(model, profile=False)
    decoder.engine.target = target
    decoder = decoder.using(drafting(target, draft), max_draft=3)
    detected: list[Recording] = []
    detect = target.detect_language

    def note(sound: Recording, languages: Sequence[int]) -> int:
        detected.append(sound)
        return detect(sound, languages)

    monkeypatch.setattr(target, "detect_language", note)
    result = decoder.generate(SOUNDS[0], n=3, temperature=1.0, seed=5, max_new_tokens=9)
    assert heard == [1] and len(detected) == 1
    assert len({choice.token_ids for choice in result.choices}) == 3
    assert result.stats.proposed > 0
    decoder.generate_batch(SOUNDS, max_new_tokens=9)
    assert heard == [1] * (1 + len(SOUNDS))


def test_a_draft_model_with_another_encoder_hears_by_itself() -> None:
    model, other = tiny_whisper(), tiny_whisper(seed=7, decoder_layers=1)
    target = SpeechTarget(model)
    draft = SpeechTarget.beside(target, other, None)
    heard, heard_again = count_hearings(model), count_hearings(other)
    decoder = load(model, profile=False)
    decoder.engine.target = target
    decoder.using(drafting(target, draft), max_draft=3).generate(SOUNDS[0], max_new_tokens=9)
    assert (heard, heard_again) == ([1], [1])
    assert draft.hearing is not target.hearing


def test_what_was_heard_goes_with_the_recording() -> None:
    target = SpeechTarget(shared_whisper())
    first, second = recording(0), recording(1)
    for one in (first, second):
        target.hearing.states(one)
    size = 50 * 32 * 8
    assert target.hearing.num_bytes == 2 * size
    del first, one
    gc.collect()
    assert target.hearing.num_bytes == size


def test_an_encoder_is_the_same_to_the_last_bit_or_another_one() -> None:
    model = shared_whisper()
    assert same_encoder(with_encoder_of(model), model)
    changed: Any = with_encoder_of(model)
    with torch.no_grad():
        weight = changed.model.encoder.layers[1].fc2.weight
        weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(1e9, dtype=weight.dtype))
    assert not same_encoder(changed, model)
    assert not same_encoder(tiny_whisper(encoder_layers=1), model)
    assert not same_encoder(with_encoder_of(model, activation_function="relu"), model)
    assert not same_encoder(with_encoder_of(model, encoder_attention_heads=2), model)
    assert not same_encoder(tiny_whisper(dtype=torch.float32), tiny_whisper())


def test_features_that_differ_make_another_hearing_of_the_same_encoder() -> None:
    model = shared_whisper()
    target = SpeechTarget(model)
    other = SpeechTarget.beside(target, with_encoder_of(model), extractor(n_fft=320))
    assert other.hearing is not target.hearing


def test_an_encoder_that_is_shared_is_let_go_and_the_target_s_stays() -> None:
    model = tiny_whisper()
    draft: Any = with_encoder_of(model)
    before = sum(one.numel() for one in draft.parameters())
    target = SpeechTarget(model)
    SpeechTarget.beside(target, draft, None)
    gone = sum(one.numel() for one in model.get_encoder().parameters())
    assert sum(one.numel() for one in draft.parameters()) == before - gone
    torch.testing.assert_close(
        whole(model, SOUNDS[0], (START, 5)), whole(tiny_whisper(), SOUNDS[0], (START, 5))
    )


def test_a_draft_model_can_be_made_to_share() -> None:
    model = tiny_whisper()
    target = SpeechTarget(model)
    draft = SpeechTarget.beside(target, tiny_whisper(seed=7), None, must_share=True)
    assert draft.hearing is target.hearing
    narrow = tiny_whisper(d_model=16)
    with pytest.raises(OptionError, match=r"takes 50 states of 16, .* gives 50 of 32"):
        SpeechTarget.beside(target, narrow, None, must_share=True)


# -- memory, and what is refused ------------------------------------------------------------------


def test_what_a_recording_takes_of_memory_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    target = SpeechTarget(tiny_whisper())
    monkeypatch.setattr("outrider.targets.memory.available_memory", lambda device: 200_000)
    target.require_room(1, 8, 1, target.input_length(recording()))
    with pytest.raises(OptionError, match="for what is read"):
        target.require_room(8, 8, 1, target.input_length(recording()))


def test_the_model_is_left_as_it_was() -> None:
    model = tiny_whisper()
    before = model.config._attn_implementation
    load(model, profile=False).generate(SOUNDS[0], max_new_tokens=5)
    assert model.config._attn_implementation == before
    assert torch.equal(
        whole(model, SOUNDS[0], (START, 5)), whole(tiny_whisper(), SOUNDS[0], (START, 5))
    )


def test_what_is_no_recording_of_a_window_is_refused_before_any_work() -> None:
    target = SpeechTarget(shared_whisper())
    for given, message in (
        ((5, 6), "hears recordings: it reads no text"),
        (Recording(torch.zeros(0)), "0 samples; .* hears 1 to 16000"),
        (Recording(torch.zeros(16_001)), "16001 samples; .* hears 1 to 16000"),
    ):
        with pytest.raises(PromptError, match=message):
            target.check_input(given)
    with pytest.raises(PromptError, match="reads text, and a recording is given"):
        EncoderDecoderTarget(shared_pair()).check_input(recording())


def test_features_that_the_encoder_does_not_take_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"gives 80 bins of 100 frames; .* 8 of 100"):
        SpeechTarget(shared_whisper(), extractor=extractor(feature_size=80))
    with pytest.raises(UnsupportedModelError, match=r"gives 8 bins of 200 frames; .* 8 of 100"):
        SpeechTarget(shared_whisper(), extractor=extractor(chunk_length=2))


def test_a_draft_model_that_hears_at_another_rate_is_refused() -> None:
    target = SpeechTarget(shared_whisper())
    fast = extractor(sampling_rate=32_000, hop_length=320)
    with pytest.raises(OptionError, match="recordings of 32000 Hz; the target hears 16000"):
        SpeechTarget.beside(target, tiny_whisper(), fast)
