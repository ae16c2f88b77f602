"""Drafter specs: one word, some with an argument, all else refused."""

from __future__ import annotations

import pytest

from outrider.drafters.spec import DrafterSpec, parse_spec
from outrider.errors import OptionError


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("none", DrafterSpec("none")),
        ("suffix", DrafterSpec("suffix")),
        ("prediction", DrafterSpec("prediction")),
        ("prediction:a:b.txt", DrafterSpec("prediction", "a:b.txt")),
        ("model:org/name", DrafterSpec("model", "org/name")),
    ],
)
def test_a_spec_is_a_kind_and_what_it_is_made_from(text: str, spec: DrafterSpec) -> None:
    assert parse_spec(text) == spec


@pytest.mark.parametrize("text", ["", "sufix", "suffix:", "suffix:9", "none:x", "Suffix"])
def test_an_unknown_spec_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(OptionError, match="is unknown; known are none, ngram"):
        parse_spec(text)


@pytest.mark.parametrize("text", ["model", "model:", "prediction:"])
def test_a_spec_without_its_argument_says_what_to_write(text: str) -> None:
    with pytest.raises(OptionError, match=r"names no \w+; write "):
        parse_spec(text)
