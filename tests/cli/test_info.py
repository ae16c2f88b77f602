from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from outrider.checkpoints.inspection import HeadReport
from outrider.cli.main import app
from outrider.drafters.spec import Way
from outrider.drafters.translation import Overlap
from outrider.drafters.vocabulary import VocabularyMatch
from outrider.errors import LoadError
from outrider.targets import inspection
from outrider.targets.capabilities import RollbackClass
from outrider.targets.inspection import ModelReport, PairReport
from outrider.tuning import measured
from outrider.tuning.measured import Measured

TARGET = ModelReport(
    spec="big[1]",
    model_type="llama",
    model_class="LlamaForCausalLM",
    layers=30,
    parameters=1_345_150,
    dtype="float32",
    weight_bytes=3 * 2**20,
    file_bytes=None,
    kv_bytes_per_token=512,
    context_length=8192,
    rows=49_160,
    vocabulary=49_152,
    rollback=RollbackClass("crop"),
    unsupported=(),
)
HEAD = HeadReport(
    spec="my-head",
    title="EAGLE-3",
    format="speculators",
    heads=None,
    layers=1,
    parameters=12_000,
    dtype="bfloat16",
    weight_bytes=2**20,
    kv_bytes_per_token=128,
    vocabulary=49_160,
    draft_vocabulary=32_000,
    feature_layers=(2, 15, 27),
    trained_for="org/big",
    changes_target=False,
    problem=None,
)
TABLE = """\
┏━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━┓
┃                 ┃ target                    ┃
┡━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━┩
│ model           │ big[1]                    │
│ class           │ LlamaForCausalLM          │
│ layers          │ 30                        │
│ parameters      │ 1,345,150                 │
│ weights         │ 3.0 MiB in float32        │
│ cache per token │ 512 bytes                 │
│ context         │ 8,192 tokens              │
│ vocabulary      │ 49,152 ids, 49,160 logits │
│ rollback        │ crop                      │
└─────────────────┴───────────────────────────┘
"""


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))


def run(monkeypatch: pytest.MonkeyPatch, report: PairReport | Exception, *arguments: str) -> Result:
    """Run the command on a report, and check what the report was asked for."""

    def inspect(*given: Any, **options: Any) -> PairReport:
        assert (given, options) == (("smollm2-135m", "suffix"), {"trust_remote_code": False})
        if isinstance(report, Exception):
            raise report
        return report

    monkeypatch.setattr(inspection, "inspect_pair", inspect)
    return CliRunner().invoke(app, ["info", *arguments])


def test_a_target_alone_is_one_column(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, PairReport(TARGET, "suffix"))
    assert result.exit_code == 0
    assert result.stdout == TABLE + (
        "drafter: suffix (no model)\nmemory at full context: 7.0 MiB\nsupported: yes\n"
    )


def test_a_draft_model_is_a_second_column_and_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = replace(TARGET, spec="small", parameters=100_000, weight_bytes=2**20, layers=None)
    match = VocabularyMatch(49_152, 49_160, 49_152, is_checked=True)
    result = run(monkeypatch, PairReport(TARGET, "model", drafter, match))
    assert "│ model           │ big[1]                    │ small" in result.stdout
    assert "│ layers          │ 30                        │ unknown" in result.stdout
    assert result.stdout.endswith(
        "shared ids: 49,152, checked id by id\n"
        "size: the draft model is 13.5 times smaller than the target: a good size\n"
        "memory at full context: 12.0 MiB\n"
        "supported: yes\n"
    )


@pytest.mark.parametrize(
    ("ways", "said"),
    [
        (
            ("tokens", "text"),
            "tokens that both have (way=tokens) or text that the target's tokenizer cuts "
            "(way=text), whichever brings more",
        ),
        (("text",), "text that the target's tokenizer cuts (way=text)"),
    ],
)
def test_a_draft_model_of_another_tokenizer_says_what_is_in_common_and_how_it_drafts(
    ways: tuple[Way, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = replace(TARGET, spec="small", parameters=100_000, weight_bytes=2**20)
    overlap = Overlap(shared=16_384, target_tokens=49_152, draft_tokens=32_768, ways=ways)
    report = PairReport(TARGET, "model", drafter, overlap=overlap)
    result = run(monkeypatch, report)
    assert result.exit_code == 0
    assert (
        f"tokens in common: 16,384: 33.3% of the target's, 50.0% of its own\ndrafts: {said}\nsize: "
    ) in result.stdout
    assert result.stdout.endswith("supported: yes\n")
    found = json.loads(run(monkeypatch, report, "--json").stdout)
    assert found["overlap"]["shared"] == 16_384 and found["overlap"]["ways"] == list(ways)


def test_a_trained_head_is_described_below(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, PairReport(TARGET, "eagle", head=HEAD))
    assert result.stdout == TABLE + (
        "drafter: EAGLE-3 in speculators format, my-head\n"
        "head layers: 1\n"
        "head parameters: 12,000, 1.0 MiB in bfloat16\n"
        "reads the target's state: entering layers 2, 15, 27\n"
        "drafts: 32,000 of 49,160 token ids\n"
        "trained for: org/big\n"
        "memory at full context: 9.0 MiB\n"
        "supported: yes\n"
    )


def test_a_draft_model_that_shares_the_ends_is_described_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draft = replace(HEAD, title="draft model", layers=3, feature_layers=(), format="native")
    result = run(monkeypatch, PairReport(TARGET, "model", head=draft))
    assert result.stdout == TABLE + (
        "drafter: draft model in native format, my-head\n"
        "own layers: 3\n"
        "own parameters: 12,000, 1.0 MiB in bfloat16\n"
        "shares the target's: embeddings and output layer\n"
        "drafts: 32,000 of 49,160 token ids\n"
        "trained for: org/big\n"
        "memory at full context: 9.0 MiB\n"
        "supported: yes\n"
    )


def test_a_head_that_does_not_fit_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    medusa = replace(
        HEAD, title="Medusa-2", heads=5, feature_layers=(-1,), changes_target=True, problem="no"
    )
    result = run(monkeypatch, PairReport(TARGET, "medusa", head=medusa))
    assert "head layers: 5 heads of 1\n" in result.stdout
    assert "reads the target's state: after the final norm\n" in result.stdout
    assert "trained for: org/big, which was trained along with it\n" in result.stdout
    assert result.stdout.endswith("supported: no: no\n")


def test_what_is_not_supported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    target = replace(TARGET, unsupported=("it has mamba layers",), kv_bytes_per_token=None)
    result = run(monkeypatch, PairReport(target, "suffix"))
    assert result.exit_code == 0
    assert result.stdout.endswith(
        "memory at full context: unknown\nsupported: no: target: it has mamba layers\n"
    )


def test_json_is_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    report = PairReport(TARGET, "eagle", head=HEAD)
    result = run(monkeypatch, report, "--json")
    assert json.loads(result.stdout)["head"]["feature_layers"] == [2, 15, 27]
    expected = report.to_dict() | {"measured": []}
    assert json.loads(result.stdout) == json.loads(json.dumps(expected))


def test_what_was_measured_here_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    gains = (("suffix", 1.5), ("ngram", 1.1))
    one = Measured(
        "float32", "fast", "compiled", "2030-01-02", gains, "suffix", ((4, 1.03), (8, 1.19))
    )

    def measured_here(model: str) -> list[Measured]:
        assert model == "smollm2-135m"
        return [one]

    monkeypatch.setattr(measured, "measured_here", measured_here)
    result = run(monkeypatch, PairReport(TARGET, "suffix"))
    assert result.stdout.endswith(
        "supported: yes\n"
        "measured here (float32, compiled, fast numerics, 2030-01-02): "
        "best drafter suffix (suffix 1.50x, ngram 1.10x); rows cost 1.03x for 4, 1.19x for 8\n"
    )
    document = json.loads(run(monkeypatch, PairReport(TARGET, "suffix"), "--json").stdout)
    assert document["measured"] == [one.to_dict()]


def test_a_model_that_is_not_found_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, LoadError("unknown model 'x'"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: unknown model 'x'\n"
