"""The whole way from the command to a model: a tiny one, saved as users have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import outrider
from outrider.cli.main import app
from support.files import save_tiny_model

PROMPT = "w1 w2 w3 w1 w2 w3 w1"
LENGTH = "--max-new-tokens=12"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return save_tiny_model(tmp_path_factory.mktemp("tiny"))


def generate(folder: Path, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["generate", PROMPT, f"--target={folder}", *arguments])
    assert result.exit_code == code, result.output
    return result.stdout


def document(folder: Path, *arguments: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(generate(folder, "--json", *arguments))
    return parsed


@pytest.mark.parametrize("drafter", ["none", "ngram", "suffix", "prediction", "model"])
@pytest.mark.parametrize("sampling", [(), ("--temperature=1", "--seed=5")])
def test_every_drafter_gives_the_tokens_of_plain_decoding(
    folder: Path, tmp_path: Path, drafter: str, sampling: tuple[str, ...]
) -> None:
    expected = tmp_path / "expected.txt"
    expected.write_text("w1 w2 w3 w4")
    spec = {"prediction": f"prediction:{expected}", "model": f"model:{folder}"}.get(
        drafter, drafter
    )
    found = document(folder, f"--drafter={spec}", "--compare", LENGTH, *sampling)
    assert found["compare"]["identical"] is True
    assert len(found["token_ids"]) == found["stats"]["tokens"] == 12
    assert found["finish_reason"] == "length"


def test_the_command_gives_what_the_library_gives(folder: Path) -> None:
    found = document(folder, "--temperature=1", "--seed=5", "--logprobs=2", LENGTH)
    decoder = outrider.load(str(folder), drafter="suffix")
    result = decoder.generate(PROMPT, temperature=1, seed=5, logprobs=2, max_new_tokens=12)
    assert result.logprobs is not None
    assert found["token_ids"] == list(result.token_ids)
    assert found["text"] == result.text
    assert [len(record["top"]) for record in found["logprobs"]] == [2] * 12
    # The two may have drafted differently, which moves the last bits (numerics "fast").
    assert [record["chosen"] for record in found["logprobs"]] == pytest.approx(
        [record.chosen for record in result.logprobs], abs=1e-6
    )


def test_streamed_text_is_the_text(folder: Path) -> None:
    """SERVE-5: and it ends before a stop string."""
    text = document(folder, LENGTH)["text"]
    assert generate(folder, LENGTH) == text + "\n"
    stop = text[len(text) // 2 :][:4]
    assert generate(folder, LENGTH, f"--stop={stop}") == text[: text.index(stop)] + "\n"


def test_a_prediction_file_that_is_missing_is_a_wrong_request(folder: Path) -> None:
    generate(folder, "--drafter=prediction:nowhere.txt", code=2)


def test_an_option_out_of_range_is_a_wrong_request(folder: Path) -> None:
    generate(folder, "--top-p=3", code=2)
