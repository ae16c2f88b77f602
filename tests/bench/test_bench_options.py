"""What a benchmark may be asked for."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.bench.base import Case
from outrider.bench.drafter_sets import parse_drafter_sets
from outrider.bench.options import BenchOptions
from outrider.errors import OptionError


def options(drafters: str = "suffix", **given: Any) -> BenchOptions:
    return BenchOptions(parse_drafter_sets(drafters), **given)


def test_each_drafter_meets_each_temperature_batch_and_rule_and_plain_has_no_rule() -> None:
    found = options(
        "suffix,ngram", temperatures=(0.0, 1.0), batches=(1, 4), rules=("match", "rejection")
    ).own_cases("int8")
    assert len(found) == 4 * (1 + 2 * 2)
    assert {case.weights for case in found} == {"int8"}
    plain = [case for case in found if case.drafter == "none"]
    assert [(c.temperature, c.batch, c.rule) for c in plain] == [
        (0.0, 1, "match"),
        (0.0, 4, "match"),
        (1.0, 1, "match"),
        (1.0, 4, "match"),
    ]
    case = Case("ngram", weights="int8", temperature=1.0, batch=4, rule="rejection")
    assert found[case].text == "ngram"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"temperatures": (-1.0,)}, "temperature is -1.0"),
        ({"temperatures": (float("nan"),)}, "temperature is nan"),
        ({"temperatures": (0.0, 0.0)}, "temperatures names 0.0 twice"),
        ({"batches": (0,)}, "batch is 0"),
        ({"batches": ()}, "batches is empty"),
        ({"batches": (2, 2)}, "batches names 2 twice"),
        ({"rules": ("luck",)}, "rule is 'luck'; it must be one of match"),
        ({"repeats": 0}, "repeats is 0"),
        ({"max_minutes": 0.0}, "max_minutes is 0"),
    ],
)
def test_what_makes_no_sense_is_one_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        options(**given)
