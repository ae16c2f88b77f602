from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import outrider
from outrider.cli.main import app
from outrider.errors import LoadError
from outrider.server import run as running
from outrider.server.settings import ServerSettings
from support.drafts import draft_of, save_draft
from support.files import save_tiny_model
from support.tiny import tiny_model

Command = Callable[..., Result]


@pytest.fixture
def served() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, served: list[dict[str, Any]]) -> Command:
    monkeypatch.delenv("OUTRIDER_API_KEY", raising=False)

    def load(target: str, **options: Any) -> dict[str, Any]:
        return {"target": target, **options}

    def serve(
        load: Callable[[], Any],
        settings: ServerSettings,
        listener: socket.socket,
        *,
        on_ready: Callable[[], None],
    ) -> None:
        served.append({"loaded": load(), "settings": settings, "at": listener.getsockname()})
        on_ready()

    monkeypatch.setitem(outrider.__dict__, "load", load)
    monkeypatch.setattr(running, "serve", serve)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["serve", "--port", "0", *arguments])

    return run


def test_the_line_that_it_listens_names_the_address(
    command: Command, served: list[dict[str, Any]]
) -> None:
    result = command()
    assert result.exit_code == 0, result.output
    host, port = served[0]["at"]
    assert host == "127.0.0.1"
    assert result.stdout == f"listening on http://127.0.0.1:{port} (drafter: suffix)\n"


def test_options_reach_the_library_and_the_server(
    command: Command, served: list[dict[str, Any]]
) -> None:
    arguments = (
        "--target=t --drafter=suffix,ngram --max-draft=4 --rule=traversal --dtype=float32 "
        "--device=cpu --offload-folder=/tmp/w --numerics=invariant --no-compile "
        "--trust-remote-code --name=mine --api-key=a --api-key=b --cors-origin=https://x "
        "--max-batch=3 --max-queue=5 --max-body-bytes=100 --max-prompt-tokens=7 "
        "--max-new-tokens-limit=9 --prefill-rows=32 --prefix-caches=2 --drain-seconds=1.5 "
        "--log-prompts"
    )
    assert command(*arguments.split()).exit_code == 0
    assert served[0]["loaded"] == {
        "target": "t",
        "drafter": "suffix,ngram,prediction",
        "max_draft": 4,
        "rule": "traversal",
        "dtype": "float32",
        "device": "cpu",
        "offload_folder": "/tmp/w",
        "numerics": "invariant",
        "compile": False,
        "trust_remote_code": True,
        "max_batch": 3,
    }
    assert served[0]["settings"] == ServerSettings(
        model="mine",
        api_keys=("a", "b"),
        cors_origins=("https://x",),
        max_body_bytes=100,
        max_prompt_tokens=7,
        max_new_tokens=9,
        max_queue=5,
        prefill_rows=32,
        max_prefixes=2,
        drain_seconds=1.5,
        log_prompts=True,
    )


def test_without_options_the_server_has_its_own_defaults(
    command: Command, served: list[dict[str, Any]]
) -> None:
    assert command().exit_code == 0
    assert served[0]["settings"] == ServerSettings(model="smollm2-135m")
    defaults = {"trust_remote_code": False, "max_batch": 8, "drafter": "suffix,prediction"}
    assert served[0]["loaded"] == {"target": "smollm2-135m", **defaults}


def test_the_word_lossy_reaches_the_library_and_the_line_that_it_listens(
    command: Command, served: list[dict[str, Any]]
) -> None:
    result = command("--lossy", "fly:2,0.3")
    assert result.exit_code == 0, result.output
    assert served[0]["loaded"]["lossy"] == "fly:2,0.3"
    assert result.stdout.endswith(" (drafter: suffix, LOSSY fly:2,0.3)\n")
    assert "LOSSY" not in command().stdout
    assert "lossy" not in served[1]["loaded"]


def test_keys_may_come_from_the_environment(
    command: Command, served: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_API_KEY", "key-1,key-2")
    command("--api-key", "key-3")
    assert set(served[0]["settings"].api_keys) == {"key-1", "key-2", "key-3"}
    assert "key-1" not in CliRunner().invoke(app, ["serve", "--help"]).output


@pytest.mark.parametrize(
    ("asked", "loaded"),
    [
        ("none", "none"),
        ("prediction", "prediction"),
        ("suffix,prediction", "suffix,prediction"),
        ("ngram", "ngram,prediction"),
    ],
)
def test_predictions_can_be_drafted_unless_nothing_is(
    command: Command, served: list[dict[str, Any]], asked: str, loaded: str
) -> None:
    assert command("--drafter", asked).exit_code == 0
    assert served[0]["loaded"]["drafter"] == loaded


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--drafter=prediction:file.txt"], "prediction"),
        (["--drafter=oracle"], "oracle"),
        (["--lossy=match"], "lossy is 'match'"),
        (["--lossy=fly:2,0.3", "--rule=block"], "one of them verifies"),
        (["--max-body-bytes=0"], "max_body_bytes"),
        (["--max-queue=-1"], "max_queue"),
        (["--max-draft=far"], "far"),
        (["--port=70000"], "70000"),
        (["--host=192.0.2.1"], "192.0.2.1"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_loaded(
    command: Command, served: list[dict[str, Any]], arguments: list[str], words: str
) -> None:
    result = command(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ") and words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert served == []


def test_a_model_that_cannot_be_loaded_is_one_line_and_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(target: str, **options: Any) -> Any:
        raise LoadError(f"there is no model {target!r}")

    monkeypatch.setitem(outrider.__dict__, "load", load)
    result = CliRunner().invoke(app, ["serve", "--port", "0", "--target", "nope"])
    assert result.exit_code == 1
    *log, last = result.stderr.splitlines()
    assert last == "error: there is no model 'nope'"
    assert [json.loads(line)["level"] for line in log] == ["error"]
    assert result.stdout == ""


def test_a_package_that_is_missing_is_named(
    command: Command, monkeypatch: pytest.MonkeyPatch, served: list[dict[str, Any]]
) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    result = command()
    assert result.exit_code == 2 and served == []
    assert "fastapi" in result.stderr and "pip install outrider[server]" in result.stderr


def test_a_drafter_that_does_not_fit_is_no_reason_to_serve_without_it(tmp_path: Path) -> None:
    """SERVE-4: the server does not start, and says which numbers differ."""
    target = save_tiny_model(tmp_path / "target")
    spec = save_draft(tmp_path / "draft", draft_of(tiny_model(vocab_size=72)))
    result = CliRunner().invoke(
        app, ["serve", "--port", "0", "--target", str(target), "--drafter", spec]
    )
    assert result.exit_code == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("error: ") and "72 token ids, but the target has 64" in last
    assert result.stdout == ""
