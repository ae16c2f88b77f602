"""`outrider serve --engine vllm`: what is said, what is refused, and what is started."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from outrider.cli.main import app
from outrider.cli.serve import serve
from outrider.scale import limits
from support.files import save_tiny_model
from support.vllm import make_vllm

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="vLLM does not run there")
Command = Callable[..., Result]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "target")


@pytest.fixture
def command(tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("OUTRIDER_API_KEY", raising=False)
    monkeypatch.delenv("VLLM_API_KEY", raising=False)

    def run(*arguments: str, code: int = 0) -> Result:
        python = make_vllm(tmp_path / "vllm", code=code)
        options = ["--engine", "vllm", "--target", str(target), "--vllm-python", str(python)]
        return CliRunner().invoke(app, ["serve", *options, *arguments])

    return run


def told(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "vllm" / "told.json").read_text())
    return found


def was_started(tmp_path: Path) -> bool:
    return (tmp_path / "vllm" / "told.json").exists()


def test_the_server_is_started_and_its_exit_code_is_ours(command: Command, tmp_path: Path) -> None:
    assert command("--drafter", "ngram", code=5).exit_code == 5
    assert told(tmp_path)["arguments"][:2] == ["-m", "vllm.entrypoints.openai.api_server"]
    assert command("--drafter", "ngram", code=0).exit_code == 0


def test_options_reach_it_and_what_follows_two_dashes_as_it_is(
    command: Command, tmp_path: Path
) -> None:
    arguments = (
        "--drafter=ngram --max-draft=3 --dtype=float32 --no-compile --trust-remote-code "
        "--tensor-parallel=2 --pipeline-parallel=3 --max-batch=9 --host=::1 --port=9001 --name=m "
        "--cors-origin=https://x --drain-seconds=4 --rule=rejection --numerics=fast "
        "-- --max-model-len 64"
    )
    assert command(*arguments.split()).exit_code == 0
    words = " ".join(told(tmp_path)["arguments"])
    for said in (
        "--served-model-name m --dtype float32 --host ::1 --port 9001",
        '--allowed-origins ["https://x"] --shutdown-timeout 4',
        "--tensor-parallel-size 2 --pipeline-parallel-size 3 --max-num-seqs 9",
        "--enforce-eager --trust-remote-code --speculative-config",
        '"num_speculative_tokens": 3',
    ):
        assert said in words
    assert words.endswith("--max-model-len 64")


def test_a_key_goes_by_the_environment_alone(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_API_KEY", "s3cret")
    result = command("--drafter", "none")
    found = told(tmp_path)
    assert found["variables"]["VLLM_API_KEY"] == "s3cret"
    assert "OUTRIDER_API_KEY" not in found["variables"]
    assert "s3cret" not in " ".join(found["arguments"]) + result.output
    assert "s3cret" not in command("--drafter", "none", "--dry-run").output


def test_what_vllm_does_otherwise_is_said_before_it_starts(command: Command) -> None:
    result = command("--drafter", "suffix")
    lines = result.stderr.splitlines()
    assert all(line.startswith("note: ") for line in lines)
    for words in ("min_p or logit_bias", "same distribution", "no profile of this target"):
        assert any(words in line for line in lines)
    assert result.stdout == ""


def test_a_dry_run_starts_nothing_and_says_all(command: Command, tmp_path: Path) -> None:
    result = command("--drafter", "suffix", "--dry-run")
    assert result.exit_code == 0 and not was_started(tmp_path)
    found = json.loads(result.stdout)
    assert set(found) == {"command", "environment", "speculative_config", "notes"}
    assert found["speculative_config"]["method"] == "custom_class"
    assert set(found["environment"]) == {"PYTHONPATH"}
    assert result.stderr == ""


REFUSED = {
    "--rule=match": "rule is 'match', which cannot be had with vLLM: it draws sampled tokens",
    "--rule=block": "rule is 'block', which cannot be had with vLLM",
    "--rule=traversal": "rule is 'traversal', which cannot be had with vLLM: it has no trees",
    "--numerics=invariant": "numerics is 'invariant', which cannot be had with vLLM",
    "--device=cpu": "--device cannot be had with vLLM",
    "--offload-folder=w": "--offload-folder cannot be had with vLLM",
    "--lossy=fly:2,0.3": "--lossy cannot be had with vLLM",
    "--max-queue=64": "--max-queue cannot be had with vLLM",
    "--max-body-bytes=9": "--max-body-bytes cannot be had with vLLM",
    "--max-prompt-tokens=9": "--max-prompt-tokens cannot be had with vLLM: it limits prompt and",
    "--max-new-tokens-limit=9": "--max-new-tokens-limit cannot be had with vLLM",
    "--prefill-rows=32": "--prefill-rows cannot be had with vLLM",
    "--prefix-caches=2": "--prefix-caches cannot be had with vLLM",
    "--log-prompts": "--log-prompts cannot be had with vLLM",
    "--drafter=suffix,ngram": "names several, and vLLM has one drafter at a time",
    "--drafter=medusa:x": "drafter 'medusa:x' cannot be had with vLLM",
    "--max-draft=far": "--max-draft 'far' is neither auto nor a number",
    "--port=0": "port is 0; with vLLM",
    "--tensor-parallel=0": "tensor_parallel is 0",
}


@pytest.mark.parametrize("argument", REFUSED)
def test_what_vllm_cannot_do_is_one_line_before_anything_starts(
    command: Command, tmp_path: Path, argument: str
) -> None:
    result = command(argument)
    assert result.exit_code == 2 and not was_started(tmp_path)
    assert result.stderr.startswith("error: ") and REFUSED[argument] in result.stderr
    assert len(result.stderr.splitlines()) == 1 and result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tensor-parallel=1"], "--tensor-parallel is for vLLM; it needs --engine vllm"),
        (["--pipeline-parallel=2"], "--pipeline-parallel is for vLLM"),
        (["--vllm-python=x"], "--vllm-python is for vLLM"),
        (["--dry-run"], "--dry-run is for vLLM"),
        (["--", "--max-model-len", "9"], "what comes after -- is for vLLM"),
        (["stray"], "what comes after -- is for vLLM"),
    ],
)
def test_options_of_vllm_are_refused_without_it(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["serve", *arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ") and words in result.stderr
    assert len(result.stderr.splitlines()) == 1


HONOURED = (
    *("target", "drafter", "max_draft", "dtype", "compile", "trust_remote_code", "host", "port"),
    *("name", "api_key", "cors_origin", "max_batch", "drain_seconds", "rule", "numerics"),
)


def test_every_option_of_the_command_is_honoured_or_refused_with_vllm() -> None:
    # A new option of `serve` needs a word on what it means for vLLM.
    options = set(inspect.signature(serve).parameters) - {"ctx", "engine"}
    assert options == {*HONOURED, *limits.VLLM_ONLY, *limits._OURS}
