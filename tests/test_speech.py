"""Speech models as users have them: a folder, a WAV file in, text out, and what cannot be had."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import outrider
from outrider.cli.main import app
from outrider.errors import LoadError, OptionError, PromptError
from outrider.targets.quiet import quiet_transformers
from outrider.targets.speech import SpeechTarget
from support.encoder_decoders import tiny_encoder_decoder
from support.files import save_tiny_model, word_tokenizer
from support.speech import (
    DE,
    RATE,
    SOUNDS,
    extractor,
    greedy_speech,
    shared_whisper,
    speech_settings,
    tiny_whisper,
)

COUNT = 20
HEARS = "hears recordings: no prompts of text can be put to it"


def save(folder: Path, **overrides: Any) -> str:
    with quiet_transformers():
        tiny_whisper(**overrides).save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    extractor().save_pretrained(folder)
    return str(folder)


def write(path: Path, index: int = 0, rate: int = RATE) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(4)
        file.setframerate(rate)
        whole = SOUNDS[index].double().numpy() * 2.0**30  # half as loud: there is room above
        file.writeframes(whole.astype("<i4").tobytes())
    return path


def words(ids: list[int]) -> str:
    return " ".join(f"w{token}" for token in ids)


def test_a_wav_file_becomes_the_text_that_transformers_gives(tmp_path: Path) -> None:
    decoder = outrider.load(save(tmp_path / "model"), drafter="suffix", profile=False)
    path = write(tmp_path / "a.wav")
    ids = greedy_speech(shared_whisper(), SOUNDS[0] / 2, max_new_tokens=COUNT, language="de")
    for audio in (path, str(path), SOUNDS[0] / 2, (SOUNDS[0] / 2).numpy()):
        found = decoder.generate(audio, max_new_tokens=COUNT, language="german")
        assert list(found.token_ids) == ids and found.text == words(ids)
    assert found.prompt_ids[1] == DE
    assert found.stats.prompt_tokens == 4 + 50  # the encoder makes fifty positions of a second


def test_the_extractor_of_the_folder_makes_the_features(tmp_path: Path) -> None:
    folder = save(tmp_path)
    extractor(n_fft=320).save_pretrained(folder)
    target = outrider.load(folder, profile=False).engine.target
    assert isinstance(target, SpeechTarget)
    assert target.hearing.extractor.n_fft == 320


def test_streams_batches_and_choices_say_what_single_answers_do() -> None:
    decoder = outrider.load(shared_whisper(), tokenizer=word_tokenizer(), drafter="ngram")
    options: dict[str, Any] = {"temperature": 1.0, "seed": 5, "max_new_tokens": COUNT}
    one = decoder.generate(SOUNDS[1], **options)
    assert "".join(chunk.text for chunk in decoder.stream(SOUNDS[1], **options)) == one.text
    batch = decoder.generate_batch(SOUNDS, **options)
    assert batch[1].token_ids == one.token_ids
    several = decoder.generate(SOUNDS[1], n=3, **options)
    assert len({choice.token_ids for choice in several.choices}) == 3
    assert several.choices[0].token_ids == one.token_ids


def test_requests_for_a_scheduler_begin_in_the_language_that_is_heard() -> None:
    decoder = outrider.load(shared_whisper(), profile=False)
    (request,) = decoder.requests(SOUNDS[0])
    assert request.prompt_ids == decoder.generate(SOUNDS[0], max_new_tokens=1).prompt_ids


def test_all_of_a_batch_is_checked_before_anything_is_heard() -> None:
    model: Any = tiny_whisper()
    decoder = outrider.load(model, profile=False)
    model.model.encoder.register_forward_hook(lambda *_: pytest.fail("heard"))
    with pytest.raises(PromptError, match=r"2\.0 s long; the model hears 1 s at once"):
        decoder.generate_batch([SOUNDS[0], np.zeros(2 * RATE)])


def test_a_smaller_model_drafts_and_shares_an_encoder_that_is_the_same(tmp_path: Path) -> None:
    target, draft = save(tmp_path / "target"), save(tmp_path / "draft", seed=3)
    same: Any = tiny_whisper(seed=3)
    same.model.encoder.load_state_dict(shared_whisper().get_encoder().state_dict())
    with quiet_transformers():
        same.save_pretrained(tmp_path / "distilled")
    word_tokenizer().save_pretrained(tmp_path / "distilled")
    extractor().save_pretrained(tmp_path / "distilled")
    ids = greedy_speech(shared_whisper(), SOUNDS[0], max_new_tokens=COUNT)
    for name, shares in (
        (draft, False),
        (f"{draft}?encoder=shared", True),
        (str(tmp_path / "distilled"), True),
    ):
        decoder = outrider.load(target, drafter=f"model:{name}", max_draft=3, profile=False)
        found = decoder.generate(SOUNDS[0], max_new_tokens=COUNT)
        assert list(found.token_ids) == ids and found.stats.proposed > 0
        (drafter,) = decoder.engine.drafters
        of_target: Any = decoder.engine.target
        of_draft: Any = getattr(drafter, "_model")  # noqa: B009
        assert (of_draft.hearing is of_target.hearing) == shares


def test_a_draft_model_must_hear_too(tmp_path: Path) -> None:
    target, text = save(tmp_path / "target"), save_tiny_model(tmp_path / "text")
    with quiet_transformers():
        tiny_encoder_decoder("bart").save_pretrained(tmp_path / "bart")
    word_tokenizer().save_pretrained(tmp_path / "bart")
    bart = str(tmp_path / "bart")
    for name, draft, message in (
        (target, str(text), "has no encoder: it cannot read what"),
        (target, bart, "reads text: it cannot read what"),
        (bart, target, "hears recordings: it cannot read what"),
        (bart, f"{bart}?encoder=shared", "encoders are shared by speech models alone"),
        (str(text), f"{text}?encoder=shared", "has no encoder to share"),
    ):
        with pytest.raises(OptionError, match=message):
            outrider.load(name, drafter=f"model:{draft}", profile=False)


def test_a_folder_without_a_feature_extractor_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path)
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(LoadError, match=r"no usable feature extractor \(preprocessor_config.json"):
        outrider.load(folder, profile=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [("return_timestamps", True), ("no_speech_threshold", 0.6), ("logprob_threshold", -1.0)],
)
def test_what_a_config_asks_for_and_cannot_be_had_is_refused(name: str, value: object) -> None:
    with pytest.raises(OptionError, match=f"generation config: {name} is {value}"):
        outrider.load(tiny_whisper(settings=speech_settings(**{name: value})), profile=False)


def test_what_is_asked_of_speech_is_asked_of_speech_models_alone(tmp_path: Path) -> None:
    text = outrider.load(str(save_tiny_model(tmp_path)), profile=False)
    with pytest.raises(OptionError, match=r"language is 'de': .* hears no speech"):
        text.generate("w5", language="de")
    with pytest.raises(OptionError, match=r"task is 'translate': .* hears no speech"):
        text.generate("w5", task="translate")
    decoder = outrider.load(shared_whisper(), profile=False)
    with pytest.raises(PromptError, match="chat=True needs text"):
        decoder.generate(SOUNDS[0], chat=True)
    with pytest.raises(PromptError, match=HEARS):
        decoder.encode("w5")
    with pytest.raises(OptionError, match="session is given"):
        decoder.generate(SOUNDS[0], session=decoder.session())


def test_custom_generate_refuses_speech() -> None:
    generate: Any = tiny_whisper().generate
    with pytest.raises(OptionError, match="custom_generate is for decoder-only models"):
        generate(
            extractor()(
                SOUNDS[0].numpy(), sampling_rate=RATE, return_tensors="pt"
            ).input_features.double(),
            custom_generate=outrider.custom_generate(drafter="suffix"),
        )


# -- the command line -----------------------------------------------------------------------------


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_a_recording_is_heard_from_the_command_line(tmp_path: Path) -> None:
    target, path = save(tmp_path / "model"), write(tmp_path / "a.wav")
    options = ["--target", target, "--max-new-tokens", str(COUNT), "--input", str(path)]
    asked = ["--language", "fr", "--task", "translate"]
    result = run("generate", *options, *asked, "--compare")
    assert result.exit_code == 0, result.output
    wanted = {"max_new_tokens": COUNT, "language": "fr", "task": "translate"}
    assert result.stdout.strip() == words(greedy_speech(shared_whisper(), SOUNDS[0] / 2, **wanted))
    assert "identical: yes" in result.stderr


def test_what_cannot_be_heard_is_refused_before_a_model_is_read(tmp_path: Path) -> None:
    target = Path(save(tmp_path / "model"))
    (target / "model.safetensors").unlink()
    other, path = tmp_path / "a.mp3", write(tmp_path / "a.wav")
    other.write_bytes(b"ID3\x04\x00\xff\xfe")
    for arguments, message in (
        (("--input", str(other), "--target", str(target)), "no WAV file: convert it"),
        (("--input", str(path), "--target", str(save_tiny_model(tmp_path / "text"))), "reads text"),
        (("a.wav", "--input", str(path), "--target", str(target)), "give either a prompt or"),
    ):
        result = run("generate", *arguments)
        assert result.exit_code == 2
        assert message in str(result.exception) + result.stderr


def test_a_recording_has_no_file_of_text(tmp_path: Path) -> None:
    target = save(tmp_path / "model")
    result = run("generate", "Hello there", "--target", target)
    assert result.exit_code == 2
    assert "the recording 'Hello there' cannot be read" in str(result.exception) + result.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("tune", "--no-compile"),
        ("prove",),
        ("bench", "--out", "results"),
        ("train", "eagle", "--out", "head"),
        ("serve", "--port", "0"),
    ],
)
def test_what_works_on_texts_refuses_a_speech_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    target = save(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    result = run(*command, "--target", target)
    assert result.exit_code == 2
    assert HEARS in str(result.exception) + result.stderr


def test_info_says_what_a_speech_model_hears(tmp_path: Path) -> None:
    target = save(tmp_path / "model")
    result = run("info", "--target", target, "--drafter", f"model:{target}?encoder=shared")
    assert result.exit_code == 0, result.output
    assert "hears: recordings of at most 1 s" in result.stdout
    assert "supported: yes" in result.stdout
    found = json.loads(run("info", "--target", target, "--json").stdout)
    assert found["target"]["hears_s"] == 1 and found["target"]["layers"] == 3
    # 64 positions of the text and 50 of the sound, in keys and values of three layers.
    cache = (64 + 50) * 2 * 3 * 32 * 8
    assert found["total_bytes"] == found["target"]["weight_bytes"] + cache
    text = run("info", "--target", target, "--drafter", f"model:{save_tiny_model(tmp_path / 'x')}")
    assert "supported: no: the target alone has an encoder" in text.stdout
