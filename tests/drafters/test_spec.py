"""Drafter specs: one word, some with an argument, all else refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.bundled import bundled_head
from outrider.drafters.spec import DrafterSpec, parse_spec, parse_specs
from outrider.errors import OptionError


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("none", DrafterSpec("none")),
        ("suffix", DrafterSpec("suffix")),
        ("prediction", DrafterSpec("prediction")),
        ("prediction:a:b.txt", DrafterSpec("prediction", "a:b.txt")),
        ("model", DrafterSpec("model")),
        ("model:org/name", DrafterSpec("model", "org/name")),
        ("model:org/name?way=text", DrafterSpec("model", "org/name", "text")),
        ("model:a@int8?way=tokens", DrafterSpec("model", "a@int8", "tokens")),
        ("eagle", DrafterSpec("eagle")),
        ("medusa:heads/of mine", DrafterSpec("medusa", "heads/of mine")),
        ("early-exit:12", DrafterSpec("early-exit", "12")),
    ],
)
def test_a_spec_is_a_kind_and_what_it_is_made_from(text: str, spec: DrafterSpec) -> None:
    assert parse_spec(text) == spec
    assert str(spec) == text


@pytest.mark.parametrize("text", ["model:a?way=words", "model:a?", "model:?way=text", "model:a?b"])
def test_an_unknown_way_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(OptionError, match=r"unknown option .*\?way=tokens and .*\?way=text"):
        parse_spec(text)


def test_a_file_may_have_a_way_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "odd?way=text"
    folder.mkdir()
    assert parse_spec(f"model:{folder}") == DrafterSpec("model", str(folder))


@pytest.mark.parametrize("text", ["", "sufix", "suffix:", "suffix:9", "none:x", "Suffix"])
def test_an_unknown_spec_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(OptionError, match="is unknown; known are none, ngram"):
        parse_spec(text)


@pytest.mark.parametrize("text", ["model:", "prediction:", "eagle:", "early-exit"])
def test_a_spec_without_its_argument_says_what_to_write(text: str) -> None:
    with pytest.raises(OptionError, match=r"names no \w+; write "):
        parse_spec(text)


@pytest.mark.parametrize(
    ("text", "specs"),
    [
        ("none", [DrafterSpec("none")]),
        ("suffix,model:org/name", [DrafterSpec("suffix"), DrafterSpec("model", "org/name")]),
        ("model:a,b/c@int8,ngram", [DrafterSpec("model", "a,b/c@int8"), DrafterSpec("ngram")]),
        (
            "prediction:a, b.txt,suffix",
            [DrafterSpec("prediction", "a, b.txt"), DrafterSpec("suffix")],
        ),
        ("model:a,model:b", [DrafterSpec("model", "a"), DrafterSpec("model", "b")]),
    ],
)
def test_commas_part_specs_but_not_names(text: str, specs: list[DrafterSpec]) -> None:
    assert parse_specs(text) == tuple(specs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is unknown"),
        ("suffix,", "'suffix,' is unknown"),
        ("suffix,sufix", "'suffix,sufix' is unknown"),
        ("suffix, ngram", "'suffix, ngram' is unknown"),
        ("none,suffix", "asks for none and for others"),
        ("suffix,none", "asks for none and for others"),
        ("suffix,ngram,suffix", "names suffix twice"),
        ("model:a,suffix,model:a", "names model twice"),
        ("prediction:a.txt,prediction", "names prediction twice"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_specs(text)


@pytest.mark.parametrize("text", ["early-exit:0", "early-exit:-1", "early-exit:last"])
def test_an_exit_is_a_layer_by_its_number(text: str) -> None:
    with pytest.raises(OptionError, match="is no number from 1"):
        parse_spec(text)


def test_a_head_that_does_not_come_along_is_said_to_be_missing() -> None:
    for kind, noun, trained in (("eagle", "head", "eagle"), ("model", "model", "draft")):
        with pytest.raises(
            OptionError,
            match=f"names no {noun}, and none comes with outrider for org/name; "
            f"write {kind}:PATH, or train one: outrider train {trained}",
        ):
            bundled_head(kind, "org/name")
