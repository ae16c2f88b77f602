"""`outrider bench`: what it asks of the library, and what it shows of the answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

import outrider
from outrider.bench import benchmark, outcome, own, reports
from outrider.bench.base import Case, Failure, Report, Row, Spread
from outrider.bench.benchmark import Benchmark
from outrider.cli.main import app
from outrider.machine import Machine

RATE = Spread(10.0, 9.0, 11.0)
PLAIN = Row(Case("none"), "all", 2, 20, RATE, speedup=Spread(1.0, 1.0, 1.0))
SUFFIX = Row(
    Case("suffix"),
    "all",
    2,
    20,
    RATE,
    speedup=Spread(1.5, 1.4, 1.6),
    identical=2,
    compared=2,
    why="drafting takes 38% of the time",
)
REPORT = Report(
    target="smollm2-135m",
    workload="built-in",
    prompts=2,
    tasks=("chat",),
    max_new_tokens=10,
    repeats=2,
    command="outrider bench",
    started="2030-01-02T03:04:05+00:00",
    machine=Machine("p", 2, 1, None, {"torch": "1"}),
    rows=(PLAIN, SUFFIX),
)
Command = Callable[..., Result]


class FakeTarget:
    """Stands for a loaded target."""

    def __init__(self, decoder: Any, weights: str, *, model: str = "", **options: Any) -> None:
        self.decoder, self.weights, self.model, self.options = decoder, weights, model, options
        self.device = torch.device("cpu")


@pytest.fixture
def asked() -> list[Any]:
    return []


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, asked: list[Any], tmp_path: Path) -> Command:
    """Return the command, over a library that answers with a given report."""

    def command(*arguments: str, report: Report = REPORT) -> Result:
        def load(target: str, **options: Any) -> Any:
            asked.append({"target": target, **options})
            dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(
                options.get("dtype", "float32"), torch.float32
            )
            model = SimpleNamespace(dtype=dtype)
            return SimpleNamespace(
                name=target,
                loaded=SimpleNamespace(model=model),
                tokenizer=None,
                engine=SimpleNamespace(target=SimpleNamespace(vocab_size=64)),
            )

        def answer(self: Benchmark, folder: Path) -> Report:
            asked.append((self, folder))
            return report

        monkeypatch.setitem(outrider.__dict__, "load", load)
        monkeypatch.setattr(own, "OwnTarget", FakeTarget)
        monkeypatch.setattr(benchmark.Benchmark, "run", answer)
        folder = str(tmp_path / "out")
        return CliRunner().invoke(app, ["bench", "--out", folder, *arguments])

    return command


def test_the_table_goes_to_stdout_with_the_files_that_were_written(
    run: Command, tmp_path: Path
) -> None:
    result = run()
    assert result.exit_code == 0, result.output
    assert "suffix" in result.stdout
    for name in ("results.json", "report.md"):
        assert f"wrote {tmp_path / 'out' / name}" in result.stdout
        assert (tmp_path / "out" / name).exists()
    assert "loading smollm2-135m" in result.stderr


def test_defaults_try_lookups_on_our_own_prompts(
    run: Command, asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/outrider", "bench", "--out", "a b"])
    run()
    loaded, (made, folder) = asked
    assert loaded == {
        "target": "smollm2-135m",
        "max_batch": 1,
        "profile": False,
        "trust_remote_code": False,
    }
    assert folder == tmp_path / "out"
    assert [one.text for one in made.options.drafter_sets] == ["none", "ngram", "suffix"]
    assert (made.options.temperatures, made.options.batches) == ((0.0,), (1,))
    assert (made.options.repeats, made.options.max_new_tokens) == (3, 128)
    assert (len(made.workload), made.workload_name) == (18, "built-in")
    assert made.peers.cases == ()
    assert made.command == "outrider bench --out 'a b'"


def test_every_option_reaches_the_library(run: Command, asked: list[Any], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "One"}\n{"prompt": "Two"}\n')
    result = run(
        "--target=t",
        "--drafters=suffix+ngram",
        f"--workload={prompts}",
        "--limit=1",
        "--temperature=0,0.5",
        "--batch=1,4",
        "--rules=match,block",
        "--max-new-tokens=9",
        "--repeats=5",
        "--max-minutes=2",
        "--weights=float32,bfloat16,int8",
        "--peers=transformers",
        "--peer-python=transformers=/env/python",
        "--peer-processes=2",
        "--device=cpu",
        "--numerics=invariant",
        "--no-compile",
    )
    assert result.exit_code == 0, result.output
    *loaded, (made, _) = asked
    how = {"device": "cpu", "numerics": "invariant", "compile": False, "profile": False}
    how |= {"max_batch": 4, "trust_remote_code": False}
    assert loaded == [
        {"target": "t", "dtype": "float32", **how},
        {"target": "t", "dtype": "bfloat16", **how},
        {"target": "t@int8", "dtype": "auto", **how},
    ]
    options = made.options
    assert [one.text for one in options.drafter_sets] == ["none", "suffix+ngram"]
    assert (options.temperatures, options.batches) == ((0.0, 0.5), (1, 4))
    assert (options.rules, options.repeats, options.max_minutes) == (("match", "block"), 5, 2.0)
    assert options.peer_processes == 2
    assert [prompt.prompt for prompt in made.workload] == ["One"]
    assert made.workload_name == "prompts.jsonl"
    assert [one.weights for one in made.own] == ["float32", "bfloat16", "int8"]
    assert made.own[0].options == {"compile": False, "trust_remote_code": False}
    assert {case.engine for case in made.peers.cases} == {"transformers"}


def test_lossy_rules_and_alternatives_reach_the_library(run: Command, asked: list[Any]) -> None:
    result = run(
        "--lossy=typical:0.09,0.3,lenience:0.5", "--alternatives=int8,other/model", "--no-compile"
    )
    assert result.exit_code == 0, result.output
    *loaded, (made, _) = asked
    assert [one["target"] for one in loaded] == [
        "smollm2-135m",
        "smollm2-135m@int8",
        "other/model",
    ]
    assert all((one["profile"], one["compile"]) == (False, False) for one in loaded)
    assert list(map(str, made.options.lossy)) == ["typical:0.09,0.3", "lenience:0.5"]
    assert [(one.model, one.weights) for one in made.own] == [
        ("", "float32"),
        ("int8", "int8"),
        ("other/model", "float32"),
    ]


def test_without_the_words_nothing_changes_the_answer(run: Command, asked: list[Any]) -> None:
    run("--rules=match,rejection,block,traversal", "--weights=float32,int8")
    *_, (made, _) = asked
    cases = [case for one in made.own for case in made._cases(one)]
    assert cases and not any(case.changes_answer for case in cases)


def test_reports_are_written_anew_without_loading_anything(
    run: Command, asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(folder: Path) -> Report:
        asked.append(folder)
        return REPORT

    monkeypatch.setattr(outcome, "read_outcome", read)
    result = CliRunner().invoke(app, ["bench", "--report-only", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    assert asked == [tmp_path]
    assert (tmp_path / "report.md").exists()
    assert json.loads(result.stdout) == json.loads((tmp_path / "results.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--out DIR is needed"),
        (["--report-only", "x", "--out", "y"], "leave out --out"),
        (["--report-only", "x", "--max-new-tokens", "128"], "leave out --max-new-tokens"),
        (["--report-only", "x", "--json", "--limit=1"], "leave out --limit"),
        (["--report-only", "x", "--lossy=fly:2,0.3"], "leave out --lossy\n"),
        (["--report-only", "x", "--no-compile"], "leave out --compile"),
    ],
)
def test_either_something_is_measured_or_reports_are_written_anew(
    arguments: list[str], message: str
) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_a_page_that_cannot_be_written_is_told_before_anything_is_measured(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "find_spec", lambda name: None)
    told = run().stderr
    assert told.index("needs plotly") < told.index("loading smollm2-135m")


def test_json_is_what_results_json_holds(run: Command, tmp_path: Path) -> None:
    result = run("--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document == json.loads((tmp_path / "out" / "results.json").read_text())
    assert document["report"] == json.loads(json.dumps(REPORT.to_dict()))


def test_an_answer_of_ours_that_differs_is_a_failure_and_a_peers_is_none(run: Command) -> None:
    different = replace(SUFFIX, identical=1, differences=("a: token 1 is 2, plain has 3",))
    assert run(report=replace(REPORT, rows=(PLAIN, different))).exit_code == 1
    theirs = replace(different, case=Case("none", "vllm"))
    assert run(report=replace(REPORT, rows=(PLAIN, theirs))).exit_code == 0


def test_a_case_that_failed_is_told_and_is_a_failure(run: Command) -> None:
    failure = Failure(Case("ngram", "vllm"), "vllm is not installed", "make peers")
    result = run(report=replace(REPORT, failures=(failure,)))
    assert result.exit_code == 1
    assert "vllm is not installed" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workload=nowhere.txt"],
        ["--limit=0"],
        ["--drafters=luck"],
        ["--batch=1,x"],
        ["--rules=luck"],
        ["--rules=typical"],
        ["--lossy=match"],
        ["--lossy=fly:2,0.3,fly:2,0.3"],
        ["--lossy=fly:2,0.3", "--drafters=none"],
        ["--alternatives="],
        ["--alternatives=int8,int8"],
        ["--alternatives=int4"],
        ["--alternatives=cut:0"],
        ["--alternatives=cut:few"],
        ["--alternatives=int8", "--target=t@int8"],
        ["--repeats=0"],
        ["--peer-processes=0"],
        ["--weights=float32", "--dtype=float32"],
        ["--weights=float8"],
        ["--peers=luck"],
        ["--peer-python=vllm"],
        ["--peer-python=vllm=/x"],
    ],
)
def test_a_wrong_request_is_refused_before_a_model_is_loaded(
    run: Command, asked: list[Any], arguments: list[str]
) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error: " in result.stderr
    assert not asked
