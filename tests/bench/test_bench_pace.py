"""The time left, by what turns have taken."""

from __future__ import annotations

import pytest
from bench_fakes import NGRAM, PLAIN, SUFFIX, make_record

from outrider.bench.pace import Pace


def test_each_case_is_expected_to_take_what_it_took_before() -> None:
    pace = Pace([PLAIN, SUFFIX, SUFFIX], [make_record(PLAIN, 4.0), make_record(SUFFIX, 1.0)])
    step = pace.step("x")
    assert (step.text, step.done, step.total, step.seconds_left) == ("x", 2, 5, 4.0 + 2 * 1.0)


def test_a_case_that_was_never_seen_is_expected_to_take_what_others_do() -> None:
    pace = Pace([NGRAM], [make_record(PLAIN, 4.0), make_record(SUFFIX, 1.0)])
    assert pace.step("x").seconds_left == pytest.approx(2.5)


def test_nobody_knows_before_the_first_turn() -> None:
    pace = Pace([PLAIN, SUFFIX], [])
    assert pace.step("x").seconds_left is None
    pace.finish(make_record(PLAIN, 3.0))
    assert pace.step("x").seconds_left == 3.0


def test_a_case_that_failed_takes_no_more_time() -> None:
    pace = Pace([PLAIN, SUFFIX, SUFFIX], [make_record(PLAIN, 4.0)])
    pace.give_up(SUFFIX)
    step = pace.step("x")
    assert (step.done, step.total, step.seconds_left) == (1, 2, 4.0)


def test_no_more_time_is_left_than_was_given() -> None:
    pace = Pace([PLAIN] * 9, [make_record(PLAIN, 4.0)])
    assert pace.step("x", 7.0).seconds_left == 7.0
    assert pace.step("x", -7.0).seconds_left == 0.0
