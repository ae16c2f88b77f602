"""The weights that are compared, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider import load
from outrider.bench.weights import parse_weights, split_suffix, weights_of
from outrider.errors import OptionError
from support.files import save_tiny_model


def test_a_type_is_a_dtype_or_a_suffix() -> None:
    assert parse_weights("org/model", ["float32", "int8"]) == (
        ("org/model", "float32"),
        ("org/model@int8", "auto"),
    )


@pytest.mark.parametrize(
    ("target", "names", "message"),
    [
        ("org/model", ["float8"], "weights 'float8' are unknown; known are float32"),
        ("org/model", ["int8", "int8"], "weights 'int8' are named twice"),
        ("org/model@int8", ["int8"], "names its weights itself: leave out @int8"),
    ],
)
def test_wrong_weights_are_one_error(target: str, names: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_weights(target, names)


def test_weights_are_named_as_they_were_loaded(tmp_path: Path) -> None:
    folder = str(save_tiny_model(tmp_path))
    assert weights_of(load(folder, dtype="bfloat16", profile=False)) == "bfloat16"
    assert weights_of(load(f"{folder}@int8", profile=False)) == "int8"


def test_a_suffix_is_taken_off_unless_it_is_in_a_name(tmp_path: Path) -> None:
    assert split_suffix("org/model@int8") == ("org/model", "int8")
    assert split_suffix("org/model@v2") == ("org/model@v2", None)
    folder = tmp_path / "model@int8"
    folder.mkdir()
    assert split_suffix(str(folder)) == (str(folder), None)
