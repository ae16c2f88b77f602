"""Encoder-decoders as users have them: a folder, text in, text out, and what cannot be had."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import outrider
from outrider.cli.main import app
from outrider.cli.options import read_prompt
from outrider.errors import OptionError, PromptError, UnsupportedModelError
from outrider.targets.quiet import quiet_transformers
from support.encoder_decoders import greedy_output, tiny_encoder_decoder
from support.files import save_tiny_model, word_tokenizer

TEXT = "w5 w6 w7 w8 w9 w10 w11"
IDS = (5, 6, 7, 8, 9, 10, 11)
COUNT = 20


def save(folder: Path, family: str = "bart", generation: dict[str, Any] | None = None) -> str:
    model = tiny_encoder_decoder(family)
    for name, value in (generation or {}).items():
        setattr(model.generation_config, name, value)
    with quiet_transformers():
        model.save_pretrained(folder)
        word_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("family", ["t5", "bart", "marian"])
def test_a_prompt_is_what_the_encoder_reads(tmp_path: Path, family: str) -> None:
    decoder = outrider.load(save(tmp_path, family), drafter="suffix", profile=False)
    result = decoder.generate(TEXT, max_new_tokens=COUNT)
    ids = greedy_output(tiny_encoder_decoder(family), IDS, COUNT)
    assert list(result.token_ids) == ids
    assert result.text == " ".join(f"w{token}" for token in ids)
    assert result.stats.prompt_tokens == len(IDS) + 1


def test_streams_batches_and_choices_say_what_single_answers_do(tmp_path: Path) -> None:
    decoder = outrider.load(save(tmp_path), drafter="ngram", profile=False)
    options: dict[str, Any] = {"temperature": 1.0, "seed": 5, "max_new_tokens": COUNT}
    one = decoder.generate(TEXT, **options)
    assert "".join(chunk.text for chunk in decoder.stream(TEXT, **options)) == one.text
    batch = decoder.generate_batch(["w1", TEXT, "w3 w4"], **options)
    assert batch[1].token_ids == one.token_ids
    several = decoder.generate(TEXT, n=3, **options)
    assert len({choice.token_ids for choice in several.choices}) == 3


def test_stop_strings_and_log_probabilities_work_as_ever(tmp_path: Path) -> None:
    decoder = outrider.load(save(tmp_path), drafter="suffix", profile=False)
    whole = decoder.generate(TEXT, max_new_tokens=COUNT, logprobs=2)
    assert whole.logprobs is not None and len(whole.logprobs) == COUNT
    word = whole.text.split()[7]
    cut = decoder.generate(TEXT, max_new_tokens=COUNT, stop=[word])
    assert cut.finish_reason == "stop"
    assert cut.text == whole.text[: whole.text.index(word)]


def test_a_forced_end_is_that_of_transformers(tmp_path: Path) -> None:
    """BART's and Marian's configs ask for it: a text cut at its limit ends in an end of text."""
    decoder = outrider.load(save(tmp_path, generation={"forced_eos_token_id": 1}), profile=False)
    model = tiny_encoder_decoder("bart")
    model.generation_config.forced_eos_token_id = 1
    for count in (1, COUNT):
        found = decoder.generate(IDS, max_new_tokens=count)
        assert list(found.token_ids) == greedy_output(model, IDS, count)
        assert found.token_ids[-1] == 1


def test_beams_that_a_model_asks_for_are_left_out_with_a_line_that_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = save(tmp_path, generation={"num_beams": 4})
    with caplog.at_level(logging.WARNING, "outrider"):
        outrider.load(folder, drafter="suffix", profile=False)
    said = [record.message for record in caplog.records if "beams" in record.message]
    assert said == [f"{folder} asks for 4 beams by default: texts are decoded without"]


def test_a_smaller_pair_drafts_with_an_encoder_of_its_own(tmp_path: Path) -> None:
    target = save(tmp_path / "target")
    decoder = outrider.load(target, drafter=f"model:{target}", max_draft=4, profile=False)
    found = decoder.generate(TEXT, max_new_tokens=COUNT)
    assert list(found.token_ids) == greedy_output(tiny_encoder_decoder("bart"), IDS, COUNT)
    assert found.stats.acceptance_rate == 1


def test_a_draft_model_without_an_encoder_is_refused(tmp_path: Path) -> None:
    target, draft = save(tmp_path / "target"), save_tiny_model(tmp_path / "draft")
    with pytest.raises(OptionError, match="has no encoder: it cannot read what"):
        outrider.load(target, drafter=f"model:{draft}")
    with pytest.raises(OptionError, match="no way applies"):
        outrider.load(target, drafter=f"model:{target}?way=text")


def test_a_draft_model_with_an_encoder_does_not_draft_for_one_without(tmp_path: Path) -> None:
    target, draft = save_tiny_model(tmp_path / "target"), save(tmp_path / "draft")
    with pytest.raises(UnsupportedModelError, match="is an encoder-decoder model"):
        outrider.load(str(target), drafter=f"model:{draft}")


def test_an_input_that_the_draft_model_cannot_read_costs_its_drafts_alone(tmp_path: Path) -> None:
    target = save(tmp_path / "target")
    with quiet_transformers():
        tiny_encoder_decoder("bart", max_position_embeddings=16).save_pretrained(tmp_path / "short")
    word_tokenizer().save_pretrained(tmp_path / "short")
    draft = f"model:{tmp_path / 'short'}"
    decoder = outrider.load(target, drafter=draft, max_draft=4, profile=False)
    with pytest.warns(outrider.errors.DrafterWarning, match="the encoder reads 16"):
        found = decoder.generate(IDS * 3, max_new_tokens=COUNT)
    assert list(found.token_ids) == greedy_output(tiny_encoder_decoder("bart"), IDS * 3, COUNT)


def test_chat_is_for_models_that_have_a_template(tmp_path: Path) -> None:
    decoder = outrider.load(save(tmp_path), profile=False)
    with pytest.raises(PromptError, match="no chat template"):
        decoder.generate(TEXT, chat=True)


# -- the command line -----------------------------------------------------------------------------


def test_a_file_is_read_in_place_of_a_prompt(tmp_path: Path) -> None:
    target, text = save(tmp_path / "model"), tmp_path / "text.txt"
    text.write_text(f"{TEXT}\n", encoding="utf-8")
    options = ["--target", target, "--max-new-tokens", str(COUNT), "--compare"]
    by_file = CliRunner().invoke(app, ["generate", "--input", str(text), *options])
    by_word = CliRunner().invoke(app, ["generate", TEXT, *options])
    assert by_file.exit_code == by_word.exit_code == 0, by_file.output
    assert by_file.stdout == by_word.stdout
    assert "identical: yes" in by_file.stderr


def test_a_file_is_read_as_it_is_but_for_its_last_line_end(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(f" {TEXT}\n\n", encoding="utf-8")
    assert read_prompt(None, text) == f" {TEXT}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either a prompt or --input FILE"),
        (["w1", "--input", "text.txt"], "give either a prompt or --input FILE"),
        (["--input", "no/such.txt"], "--input 'no/such.txt' cannot be read"),
    ],
)
def test_a_prompt_comes_from_one_place(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["generate", *arguments, "--target", "no/such"])
    assert result.exit_code == 2
    assert message in str(result.exception) + result.stderr
