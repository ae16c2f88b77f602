"""What `--drafters` says is compared."""

from __future__ import annotations

import pytest

from outrider.bench.drafter_sets import parse_drafter_sets
from outrider.errors import OptionError


def texts(text: str) -> list[str]:
    return [one.text for one in parse_drafter_sets(text)]


def test_plain_decoding_comes_first_named_or_not() -> None:
    assert texts("ngram,suffix") == ["none", "ngram", "suffix"]
    assert texts("suffix,none,ngram") == ["none", "suffix", "ngram"]
    assert texts("none") == ["none"]


def test_commas_part_sets_and_plus_joins_drafters() -> None:
    found = parse_drafter_sets("suffix+eagle,ngram+model:org/small+suffix")
    assert [[spec.kind for spec in one.specs] for one in found] == [
        [],
        ["suffix", "eagle"],
        ["ngram", "model", "suffix"],
    ]
    assert found[2].text == "ngram+model:org/small+suffix"


def test_a_comma_or_plus_in_a_path_parts_nothing() -> None:
    assert texts("model:/a,b/c+d,suffix+eagle:/e+f,g") == [
        "none",
        "model:/a,b/c+d",
        "suffix+eagle:/e+f,g",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("suffixes", "drafter 'suffixes' is unknown"),
        ("", "drafter '' is unknown"),
        ("suffix,ngram,suffix", "name suffix twice"),
        ("none,none", "name none twice"),
        ("none+suffix", "join none with others"),
        ("suffix+suffix", "join suffix twice"),
        ("suffix,prediction", "a workload has none"),
        ("suffix,grammar", "a workload has none"),
        ("early-exit", "names no layer"),
    ],
)
def test_what_cannot_be_compared_is_one_error(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_drafter_sets(text)
