"""`outrider prove`: what it asks of the library, what it shows, and how it ends."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import outrider
from outrider.cli.main import app
from outrider.cli.prove import _Clock, _Lines
from outrider.errors import OptionError
from outrider.machine import Machine
from outrider.profile import Subject
from outrider.proof import measure_loss as measuring
from outrider.proof import prove as proving
from outrider.proof.base import Check, Fork, Proof
from outrider.proof.loss import Departure, Distance, Loss

CHECKS = (
    Check(
        "identity",
        "suffix, up to 4, match",
        {"answers": 8, "tokens": 1234, "drafted": 99, "accepted": 7, "batched": 4},
        forks=(Fork("edit-1, greedy", 12, 5, 6, margin=0.01, noise=0.02),),
    ),
    Check("rules", "match: sampled chains", {"laws": 24}),
)
PROOF = Proof(
    subject=Subject("org/big", "c0", "bfloat16", "fast", is_compiled=True, placement="cpu"),
    machine=Machine("p", 2, 2, None, {"torch": "1"}),
    drafters=("suffix",),
    settings={"tokens": 2000},
    checks=CHECKS,
    seconds=90.0,
)
SHOWN = """\
1. Drafts change no token of what plain decoding says
┏━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━┳━━━━━━┳━━━━━━━━┓
"""
Command = Callable[..., Result]


@pytest.fixture
def asked() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, asked: list[dict[str, Any]]) -> Command:
    """Return the command, over a library that answers with a given proof."""

    def command(*arguments: str, proof: Proof | Exception = PROOF) -> Result:
        def load(target: str, **options: Any) -> str:
            asked.append({"target": target, **options})
            return "the decoder"

        def prove(decoder: str, workload: Any, **options: Any) -> Proof:
            options.pop("progress")("identity/0", 0.5)
            asked.append({"decoder": decoder, "prompts": [p.prompt for p in workload], **options})
            if isinstance(proof, Exception):
                raise proof
            return proof

        monkeypatch.setitem(outrider.__dict__, "load", load)
        monkeypatch.setattr(proving, "prove", prove)
        monkeypatch.setattr(sys, "argv", ["/somewhere/bin/outrider", "prove", *arguments])
        return CliRunner().invoke(app, ["prove", *arguments], env={"COLUMNS": "100"})

    return command


def test_tables_findings_and_the_verdict_go_to_stdout(run: Command) -> None:
    result = run()
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "1. Drafts change no token of what plain decoding says"
    assert "3. The rules are exact, by enumeration in rationals" in lines
    assert lines[-3] == (
        "fork: edit-1, greedy: token 12 is 5, plain decoding has 6; a tie: margin 0.01, noise 0.02"
    )
    assert lines[-2] == "model: org/big, bfloat16, fast numerics, passes compiled"
    assert lines[-1] == PROOF.verdict
    assert lines[-1].startswith("PROVED: 0 of 2 checks failed; 1,234 tokens of 8 answers compared")
    assert result.stderr.splitlines() == ["  0% loading smollm2-135m", " 50% identity/0"]


def test_defaults_compare_two_thousand_tokens_of_our_own_prompts(
    run: Command, asked: list[dict[str, Any]]
) -> None:
    run()
    loaded, proved = asked
    assert loaded == {"target": "smollm2-135m", "drafter": "suffix", "trust_remote_code": False}
    assert len(proved.pop("prompts")) >= 12
    assert proved == {
        "decoder": "the decoder",
        "tokens": 2000,
        "draws": 500,
        "seed": 0,
        "journal": None,
    }


def test_every_option_reaches_the_library_under_its_own_name(
    run: Command, asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("One\nTwo\n")
    loading = {
        "drafter": "ngram",
        "dtype": "bfloat16",
        "device": "auto",
        "offload_folder": "/tmp/weights",
        "numerics": "invariant",
    }
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in loading.items()]
    rest = ["--no-compile", "--trust-remote-code", "--target=t", f"--prompts={prompts}"]
    mine = ["--tokens=9", "--draws=300", "--seed=4", f"--journal={tmp_path / 'j'}"]
    assert run(*arguments, *rest, *mine).exit_code == 0
    loaded, proved = asked
    assert loaded == {"target": "t", **loading, "compile": False, "trust_remote_code": True}
    assert proved == {
        "decoder": "the decoder",
        "prompts": ["One", "Two"],
        "tokens": 9,
        "draws": 300,
        "seed": 4,
        "journal": tmp_path / "j",
    }


def test_json_is_the_proof_and_the_command(run: Command) -> None:
    result = run("--json", "--drafter", "suffix")
    document = json.loads(result.stdout)
    assert document.pop("command") == "outrider prove --json --drafter suffix"
    assert document == json.loads(json.dumps(PROOF.to_dict()))
    assert document["proved"] is True


FAILED = replace(PROOF, checks=(replace(CHECKS[1], faults=("law is wrong",)),))


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_not_proved_is_a_failure(run: Command, arguments: list[str]) -> None:
    result = run(*arguments, proof=FAILED)
    assert result.exit_code == 1
    if arguments:
        assert json.loads(result.stdout)["proved"] is False
    else:
        assert "fault: law is wrong\n" in result.stdout
        assert result.stdout.splitlines()[-1].startswith("NOT PROVED: 1 of 1 checks failed")


LOSS = Loss(
    rule="fly:2,0.3",
    subject=PROOF.subject,
    machine=PROOF.machine,
    drafters=("suffix",),
    settings={"tokens": 2000},
    distances=(Distance("likely drafts", 500, 900, 700, 0.25, 0.06, 0.5, 0.09),),
    departures=(Departure("suffix", 18, 2000, 90, 80, 1200, 500, 0, 1500),),
    seconds=90.0,
)


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_lossy_rule_is_measured_and_never_proved(
    run: Command,
    asked: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
) -> None:
    def measure(decoder: str, workload: Any, **options: Any) -> Loss:
        options.pop("progress")
        asked.append({"decoder": decoder, "prompts": len(workload), **options})
        return LOSS

    monkeypatch.setattr(measuring, "measure_loss", measure)
    report = tmp_path / "loss.md"
    mine = ["--tokens=9", "--draws=300", "--seed=4", f"--report={report}"]
    result = run("--lossy=fly:2,0.3", *mine, *arguments)
    assert result.exit_code == 1, result.output
    loaded, measured = asked
    assert loaded["lossy"] == "fly:2,0.3"
    assert measured == {
        "decoder": "the decoder",
        "prompts": 18,
        "tokens": 9,
        "draws": 300,
        "seed": 4,
    }
    if arguments:
        document = json.loads(result.stdout)
        assert (document["proved"], document["lossy"]) == (False, "fly:2,0.3")
    else:
        assert result.stdout.splitlines()[-1] == LOSS.verdict
    assert f"**{LOSS.verdict}**" in report.read_text(encoding="utf-8")
    assert LOSS.verdict == (
        "NOT LOSSLESS: fly:2,0.3; total variation of first tokens 0.250, noise floor 0.060 "
        "(likely drafts); of texts 0.500, noise floor 0.090 (likely drafts); 25.0% of 2,000 greedy "
        "tokens differ, 0.0% with match (suffix)"
    )


def test_a_journal_of_checks_is_refused_where_none_are_made(
    run: Command, asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    result = run("--lossy=fly:2,0.3", f"--journal={tmp_path / 'j'}")
    assert (result.exit_code, asked) == (2, [])
    assert "--journal keeps checks" in result.stderr


def test_an_interrupted_proof_shows_what_it_has(run: Command, tmp_path: Path) -> None:
    report = tmp_path / "proof.md"
    proof = replace(PROOF, was_interrupted=True)
    result = run(f"--report={report}", proof=proof)
    assert result.exit_code == 130
    assert "suffix, up to 4" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("NOT PROVED (interrupted): ")
    assert "**NOT PROVED (interrupted): " in report.read_text(encoding="utf-8")


def test_the_report_names_the_command(run: Command, tmp_path: Path) -> None:
    report = tmp_path / "proof.md"
    run(f"--report={report}")
    assert f"`outrider prove --report={report}`" in report.read_text(encoding="utf-8")


def test_a_wrong_request_is_refused_before_a_model_is_loaded(
    run: Command, asked: list[dict[str, Any]]
) -> None:
    for arguments in (["--prompts=nowhere.txt"], ["--report=nowhere/proof.md"]):
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("error: ")
    assert not asked
    assert run(proof=OptionError("tokens is 0")).exit_code == 2


def test_the_time_left_is_that_of_the_work_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier run did took no time in this one."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = _Clock()
    assert clock.left(0.0) == ""
    now[0] = 130.0
    assert clock.left(0.5) == ""
    now[0] = 190.0
    assert clock.left(0.6) == "about 4 min left"
    assert clock.left(0.9) == "less than a minute left"


def test_without_a_terminal_a_line_comes_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _Lines(_Clock())
    for share in range(100):
        lines("x", share / 100)
    told = capsys.readouterr().err.splitlines()
    assert 15 <= len(told) <= 25
    assert told[0] == "  0% x"
