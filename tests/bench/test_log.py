"""What a stopped benchmark leaves, and finds again."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_fakes import PLAIN, SUFFIX, make_record, open_log, plain_counters

from outrider.bench.base import CostPoint, Counters, Failure, PassCount
from outrider.bench.log import FILE, Log
from outrider.bench.plan import TurnKey
from outrider.errors import LoadError, OptionError

POINT = CostPoint("float32", 1, 64, 8, 0.25, computed=8)
COUNTED = Counters(
    rounds=3,
    drafts=2,
    levels=5,
    proposed=6,
    accepted=4,
    proposed_at=(3, 3),
    attempted_at=(2, 2),
    accepted_at=(2, 2),
    prefill_s=0.1,
    draft_s=0.2,
    score_s=0.3,
    host_s=0.4,
    passes=(PassCount(1, 4, 2, 80.0, 0.3),),
)


def test_everything_is_read_back_as_it_was(tmp_path: Path) -> None:
    records = [
        make_record(PLAIN, 1.5, [(1, 2), ()], prompts=("a", "b"), counters=plain_counters(4)),
        make_record(SUFFIX, 0.5, repeat=1, counters=COUNTED),
    ]
    with open_log(tmp_path) as log:
        log.add_costs([POINT])
        log.add_versions({"vllm": "0.32.0"})
        for record in records:
            log.add_record(record)
    with open_log(tmp_path) as log:
        assert log.records == records
        assert log.costs == [POINT]
        assert log.versions == {"vllm": "0.32.0"}
        assert log.done == {TurnKey.of(record) for record in records}


def test_a_log_is_read_with_the_setup_and_the_failures_of_its_last_run(tmp_path: Path) -> None:
    for error in ("not there", "not yet"):
        with open_log(tmp_path) as log:
            log.add_failure(Failure(SUFFIX, error, "wait"))
            setup = log.setup
    found = Log.read(tmp_path)
    assert found.failures == [Failure(SUFFIX, "not yet", "wait")]
    assert found.setup.to_dict() == setup.to_dict()
    assert [prompt.ids for prompt in found.setup.plan.prompts] == [(), ()]
    assert found.run == 2


def test_a_folder_without_a_log_or_with_nothing_measured_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="cannot read the benchmark records"):
        Log.read(tmp_path)
    open_log(tmp_path).close()
    with pytest.raises(OptionError, match="has measured nothing yet"):
        Log.read(tmp_path)


def test_a_run_counts_once_it_has_measured_something(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        assert log.run == 0
    for run in (0, 1, 2):
        with open_log(tmp_path) as log:
            assert log.run == run
            log.add_record(make_record(repeat=run, run=log.run))
            assert log.run == run
            assert log.started == "2030-01-02T03:04:05+00:00"


def test_half_a_record_is_forgotten(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.add_record(make_record())
        log.add_record(make_record(SUFFIX))
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:-7])
    with open_log(tmp_path) as log:
        assert [record.case for record in log.records] == [PLAIN]


def test_another_benchmark_in_the_same_folder_is_refused_by_name(tmp_path: Path) -> None:
    with open_log(tmp_path, batch=[1]) as log:
        log.add_record(make_record())
    with pytest.raises(OptionError, match=r"were made with batch \[1\], not \[1, 4\]"):
        open_log(tmp_path, batch=[1, 4])


@pytest.mark.parametrize("line", ['{"guess":{}}', '{"record":{"case":{}}}', "[]", '{"costs":[{}]}'])
def test_a_damaged_entry_is_one_error_with_its_line(tmp_path: Path, line: str) -> None:
    with open_log(tmp_path) as log:
        log.add_record(make_record())
    with (tmp_path / FILE).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(LoadError, match=":4 is damaged"):
        open_log(tmp_path)
