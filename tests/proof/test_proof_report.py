"""A proof as tables and as a page: every check with its numbers, and the verdict first and last."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.errors import LoadError, OptionError
from outrider.machine import Machine
from outrider.profile import Subject
from outrider.proof.base import CLAIMS, PARTS, Check, Fork, Proof
from outrider.proof.report import markdown, require_writable, write_report
from outrider.proof.tables import findings, proof_tables

CHECKS = (
    Check(
        "identity",
        "suffix, up to 4, match",
        {"answers": 8, "tokens": 1234, "drafted": 99, "accepted": 7, "batched": 4},
        forks=(Fork("edit-1, greedy", 12, 5, 6, margin=0.01, noise=0.02),),
        dropped=("suffix: ValueError: a|b",),
    ),
    Check("distribution", "plain decoding", {"tests": 1, "draws": 1000}, notes=("p 0.4",)),
    Check("rules", "match: sampled chains", {"laws": 24}),
    Check("options", "top_k", {"answers": 2, "tokens": 40, "changed": 1}, notes=("seen",)),
)
PROOF = Proof(
    subject=Subject("org/big", "c0", "bfloat16", "fast", is_compiled=False, placement="cpu"),
    machine=Machine("processor p", 4, 2, None, {"torch": "2", "outrider": "1"}),
    drafters=("suffix", "eagle"),
    settings={"tokens": 2000, "draws": 1000},
    checks=CHECKS,
    seconds=90.0,
    measured="2026-01-02T03:04:05+00:00",
)


def test_every_check_is_a_row_with_a_cell_for_each_column() -> None:
    for part in PARTS:
        (row,) = proof_tables(PROOF)[part].rows
        assert len(row) == len(proof_tables(PROOF)[part].headers)
        assert (row[0], row[-1]) == (PROOF.of_part(part)[0].name, "yes")
    assert "1,234" in proof_tables(PROOF)["identity"].rows[0]


def test_the_page_holds_everything() -> None:
    page = markdown(PROOF, "outrider prove --drafter suffix,eagle")
    assert page.splitlines()[2] == f"**{PROOF.verdict}**"
    for text in (
        "outrider prove --drafter suffix,eagle",
        "org/big, bfloat16, on cpu",
        "suffix, eagle",
        "processor p, 2 threads on 4 cores",
        "outrider 1, torch 2",
        "in 1.5 minutes",
        "tokens 2,000, draws 1,000",
        "once in 1,000,000 choices of the seed",
        "floating-point *tie*",
        "- fork: edit-1, greedy: token 12 is 5, plain decoding has 6; a tie: margin 0.01",
        "- drafter dropped: suffix: ValueError: a\\|b",
        "- note: seen",
    ):
        assert text in page, text
    for part in PARTS:
        title = proof_tables(PROOF)[part].title
        assert f"## {title}" in page
        assert CLAIMS[part] in title


def test_tables_of_the_page_have_as_many_cells_in_every_line() -> None:
    table: list[int] = []
    for line in [*markdown(PROOF, "a | b").splitlines(), ""]:
        if line.startswith("|"):
            table.append(line.replace("\\|", "").count("|"))
        elif table:
            assert len(set(table)) == 1, table
            table.clear()


def test_bitwise_equality_is_told_as_such() -> None:
    subject = replace(PROOF.subject, numerics="invariant")
    page = markdown(replace(PROOF, subject=subject), "c")
    assert "bit for bit" in page and "*tie*" not in page


def test_faults_come_before_forks_and_ties_last() -> None:
    tie, fork = CHECKS[0].forks[0], Fork("b", 1, 2, 3, margin=1.0, noise=0.1)
    checks = (
        replace(CHECKS[0], forks=(tie, fork)),
        Check("rules", "x", faults=("law is wrong",)),
    )
    lines = findings(replace(PROOF, checks=checks))
    assert [line.split(":")[0] for line in lines] == ["fault", "fork", "fork", "drafter dropped"]
    assert "no tie" in lines[1] and "a tie" in lines[2]
    assert findings(replace(PROOF, checks=CHECKS[1:3])) == []


def test_a_drafter_that_drafted_nothing_is_named() -> None:
    silent = Check("identity", "ngram, up to 4, match", {"answers": 4, "tokens": 9, "drafted": 0})
    expected = (
        "note: ngram, up to 4, match drafted nothing, and so shows no more than plain decoding"
    )
    assert expected in findings(replace(PROOF, checks=(silent,)))
    drafting = replace(silent, counts={**silent.counts, "drafted": 1})
    assert findings(replace(PROOF, checks=(drafting,))) == []


def test_a_report_is_written_at_once_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "proof.md"
    write_report(PROOF, path, "c")
    assert path.read_text(encoding="utf-8") == markdown(PROOF, "c")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(LoadError, match="No space left"):
        write_report(replace(PROOF, seconds=1.0), path, "c")
    assert path.read_text(encoding="utf-8") == markdown(PROOF, "c")
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    require_writable(tmp_path / "new.md")
    for path in (tmp_path / "nowhere" / "new.md", tmp_path):
        with pytest.raises(OptionError, match="cannot be written there"):
            require_writable(path)
