"""`outrider tune`: what it asks of the library, and what it shows of the answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import outrider
from outrider.cli.main import app
from outrider.engine.measure import PassPoint
from outrider.errors import LoadError
from outrider.machine import Machine
from outrider.profile import Profile, Subject, profile_path
from outrider.tuning import tune as tuning
from outrider.tuning.tally import DrafterResult
from outrider.tuning.tune import TuneReport

SUBJECT = Subject("org/big[1]", "c0", "float32", "fast", is_compiled=True, placement="cpu")
PROFILE = Profile(
    subject=SUBJECT,
    machine=Machine("p", 2, 2, None, {"torch": "1"}),
    passes={},
    drafters={"suffix": {}},
)
REPORT = TuneReport(
    profile=PROFILE,
    passes=(
        PassPoint(batch=1, rows=1, context=64, seconds=0.02, computed=1),
        PassPoint(batch=1, rows=8, context=64, seconds=0.03, computed=8),
        PassPoint(batch=2, rows=1, context=64, seconds=0.025, computed=2),
    ),
    results=(
        DrafterResult("none", 12, 768, 40.0, 1.0, None, None, 1.0),
        DrafterResult("suffix", 12, 768, 60.0, 2.5, 0.625, 1.6, 1.5),
    ),
    recommended="suffix",
)
TABLES = """\
Time of a pass, by rows of each sequence, for sequences x context
┏━━━━━━┳━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━┓
┃ rows ┃ over 1 ┃  1 x 64 ┃  2 x 64 ┃
┡━━━━━━╇━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━┩
│ 1    │  1.00x │ 20.0 ms │ 25.0 ms │
│ 8    │  1.50x │ 30.0 ms │         │
└──────┴────────┴─────────┴─────────┘
The workload, prompts included
┏━━━━━━━━━┳━━━━━━━━━━┳━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━┓
┃ drafter ┃ tokens/s ┃  tau ┃ accepted ┃ predicted ┃ measured ┃ identical ┃
┡━━━━━━━━━╇━━━━━━━━━━╇━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━━┩
│ none    │     40.0 │ 1.00 │          │           │    1.00x │     12/12 │
│ suffix  │     60.0 │ 2.50 │      62% │     1.60x │    1.50x │     12/12 │
└─────────┴──────────┴──────┴──────────┴───────────┴──────────┴───────────┘
"""
Command = Callable[..., Result]


@pytest.fixture
def asked() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, asked: list[dict[str, Any]], tmp_path: Path) -> Command:
    """Return the command, over a library that answers with a given report."""
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))

    def command(*arguments: str, report: TuneReport | Exception = REPORT) -> Result:
        def load(target: str, **options: Any) -> str:
            asked.append({"target": target, **options})
            return "the decoder"

        def tune(decoder: str, prompts: Any, **options: Any) -> TuneReport:
            options.pop("progress")("measuring passes")
            asked.append({"decoder": decoder, "prompts": [p.prompt for p in prompts], **options})
            if isinstance(report, Exception):
                raise report
            return report

        monkeypatch.setitem(outrider.__dict__, "load", load)
        monkeypatch.setattr(tuning, "tune", tune)
        return CliRunner().invoke(app, ["tune", *arguments])

    return command


def test_the_tables_go_to_stdout_and_progress_to_stderr(run: Command) -> None:
    result = run()
    assert result.exit_code == 0, result.output
    assert result.stdout == TABLES + (
        "model: org/big[1], float32, passes compiled\n"
        "fastest: --drafter suffix\n"
        f"profile: {profile_path(SUBJECT)}\n"
    )
    assert result.stderr == "loading smollm2-135m\nmeasuring passes\n"


def test_the_profile_is_written_where_loading_looks_for_it(run: Command) -> None:
    assert run().exit_code == 0
    assert Profile.load(profile_path(SUBJECT)) == PROFILE


def test_defaults_compile_and_try_our_own_prompts(
    run: Command, asked: list[dict[str, Any]]
) -> None:
    run()
    loaded, tuned = asked
    assert loaded == {
        "target": "smollm2-135m",
        "drafter": "suffix,ngram",
        "profile": False,
        "compile": True,
        "trust_remote_code": False,
    }
    assert (tuned["decoder"], tuned["max_new_tokens"]) == ("the decoder", 64)
    assert len(tuned["prompts"]) == 18


def test_every_option_reaches_the_library_under_its_own_name(
    run: Command, asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("One\nTwo\nThree\n")
    loading = {
        "drafter": "ngram",
        "dtype": "bfloat16",
        "device": "auto",
        "offload_folder": "/tmp/weights",
        "numerics": "invariant",
    }
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in loading.items()]
    rest = ["--no-compile", "--trust-remote-code", "--limit=2", "--max-new-tokens=9", "--target=t"]
    assert run(*arguments, *rest, f"--workload={prompts}").exit_code == 0
    loaded, tuned = asked
    flags = {"compile": False, "trust_remote_code": True, "profile": False}
    assert loaded == {"target": "t", **loading, **flags}
    assert tuned == {"decoder": "the decoder", "prompts": ["One", "Two"], "max_new_tokens": 9}


def test_json_is_the_report_and_where_the_profile_is(run: Command) -> None:
    result = run("--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document.pop("profile") == str(profile_path(SUBJECT))
    assert document == json.loads(json.dumps(REPORT.to_dict()))
    assert [row["speedup"] for row in document["results"]] == [1.0, 1.5]


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_an_answer_that_differs_is_named_and_is_a_failure(
    run: Command, arguments: list[str]
) -> None:
    plain, drafted = REPORT.results
    different = replace(drafted, differences=("edit-1: token 3 is 5, plain decoding has 6",))
    result = run(*arguments, report=replace(REPORT, results=(plain, different)))
    assert result.exit_code == 1
    if arguments:
        assert json.loads(result.stdout)["identical"] is False
    else:
        assert "11/12" in result.stdout
        assert result.stdout.endswith(
            "not identical: suffix, edit-1: token 3 is 5, plain decoding has 6\n"
        )


def test_a_wrong_request_is_refused_before_a_model_is_loaded(
    run: Command, asked: list[dict[str, Any]]
) -> None:
    for arguments in (["--workload=nowhere.txt"], ["--limit=0"]):
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("error: ")
    assert not asked


def test_a_failure_leaves_no_profile(run: Command) -> None:
    result = run(report=LoadError("no such model"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith("error: no such model\n")
    assert not profile_path(SUBJECT).exists()
