"""Options that hold several values."""

from __future__ import annotations

import pytest

from outrider.cli.lists import parse_list, parse_pairs
from outrider.errors import OptionError


def test_commas_part_values() -> None:
    assert parse_list("batch", "1, 4,16", int) == (1, 4, 16)
    assert parse_list("temperature", "0,0.7", float) == (0.0, 0.7)
    assert parse_list("rules", "match", str) == ("match",)


@pytest.mark.parametrize(("text", "kind"), [("1,x", int), ("1,", int), ("", float), (",", str)])
def test_what_is_no_list_is_one_error_naming_the_option(text: str, kind: type) -> None:
    with pytest.raises(OptionError, match=f"--batch {text!r} is no list of"):
        parse_list("batch", text, kind)


def test_pairs_are_split_at_the_first_sign() -> None:
    assert parse_pairs("peer-python", ["vllm=/a=b", "openvino=c"]) == (
        ("vllm", "/a=b"),
        ("openvino", "c"),
    )


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["vllm"], "'vllm' is not NAME=PATH"),
        (["=x"], "'=x' is not NAME=PATH"),
        (["vllm="], "'vllm=' is not NAME=PATH"),
        (["vllm=a", "vllm=b"], "is given twice for vllm"),
    ],
)
def test_wrong_pairs_are_one_error(pairs: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_pairs("peer-python", pairs)
