"""What a grammar says, as a value: how it is written down, compared, refused and bound."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from outrider.errors import OptionError
from outrider.sampling.grammar import Grammar
from outrider.sampling.params import SamplingParams
from outrider.sampling.pipeline import LogitsPipeline
from support.byte_vocabulary import (
    EOS,
    VOCAB,
    accepts,
    begin,
    bound,
    byte_tokenizer,
    shared_tokenizer,
)

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}
GBNF = 'root ::= item ("," item)*\nitem ::= [a-c]+\n'
LARK = 'start: item ("," item)*\nitem: /[a-c]+/\n'

LANGUAGES: dict[str, tuple[Grammar, list[str], list[str]]] = {
    "schema": (
        Grammar.json_schema(PERSON),
        ['{"name":"Zoë 😀"}', '{ "name" : "x",\n "age": -7 }'],
        [
            "{}",
            '{"age":1,"name":"x"}',
            '{"name":"x","z":1}',
            '{"name":"x"} ',
            '{"name":"long name "}',
        ],
    ),
    "schema as text": (Grammar.json_schema(json.dumps({"enum": [1, "a"]})), ["1", '"a"'], ["a"]),
    "schema, compact": (
        Grammar.json_schema(PERSON, compact=True),
        ['{"name":"x","age":3}'],
        ['{"name": "x"}', ' {"name":"x"}'],
    ),
    "any JSON": (Grammar.json_schema(True), ["1", "null", '{"a":[]}', '"x"'], ["", "nul", "'x'"]),
    "any object": (Grammar.json_object(), ["{}", '{"a":{"b":[1]}}'], ["[]", "1", "{} {}"]),
    "any object, compact": (Grammar.json_object(compact=True), ['{"a":1}'], ["{ }"]),
    "regex": (Grammar.regex(r"\d{2}-[x-z]*"), ["12-", "99-zyx"], ["1-", "12-a", "a12-"]),
    "empty regex": (Grammar.regex("x?"), ["", "x"], ["xx"]),
    "choice": (
        Grammar.choice(["yes", "yes, sir", 'a"b\\n\n/é😀']),
        ["yes", "yes, sir", 'a"b\\n\n/é😀'],
        ["y", "yes,", "no", ""],
    ),
    "lark": (Grammar.lark(LARK), ["a", "ab,c"], ["", "a,", "d"]),
    "gbnf": (Grammar.gbnf(GBNF), ["a", "ab,c"], ["", "a,", "d"]),
}


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_grammar_accepts_its_own_language_and_nothing_else(name: str) -> None:
    grammar, texts, others = LANGUAGES[name]
    assert [text for text in texts if not accepts(grammar, text)] == []
    assert [text for text in others if accepts(grammar, text)] == []


def test_grammars_are_equal_if_they_say_the_same_whatever_they_are_bound_to() -> None:
    one, other = Grammar.regex("ab"), Grammar.regex("ab")
    assert one == other == bound(one) and hash(one) == hash(bound(other))
    assert one != Grammar.choice(["ab"]) != Grammar.lark("ab")
    assert Grammar.json_schema('{"type": "object"}') == Grammar.json_object()


def test_properties_keep_the_order_of_the_schema() -> None:
    schema = {"type": "object", "properties": {"z": {}, "a": {}}, "required": ["z", "a"]}
    assert accepts(Grammar.json_schema(schema), '{"z":1,"a":2}')
    assert not accepts(Grammar.json_schema(schema), '{"a":1,"z":2}')


def test_compact_keeps_what_a_schema_says_to_the_compiler_itself() -> None:
    schema = {"x-guidance": {"coerce_one_of": True}, "oneOf": [{"type": "integer"}, {"minimum": 0}]}
    assert accepts(Grammar.json_schema(schema, compact=True), "3")


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: Grammar.json_schema("{"), "json_schema"),
    (lambda: Grammar.json_schema('["a"]'), "expected an object"),
    (lambda: Grammar.json_schema(False), "expected an object"),
    (lambda: Grammar.json_schema(7), "expected an object"),  # type: ignore[arg-type]
    (lambda: Grammar.json_schema({"const": {1, 2}}), "no JSON"),
    (lambda: Grammar.json_schema({"const": float("nan")}), "no JSON"),
    (lambda: Grammar.regex(3), "no text"),  # type: ignore[arg-type]
    (lambda: Grammar.regex("\ud800"), "UTF-8"),
    (lambda: Grammar.choice([]), "expected texts"),
    (lambda: Grammar.choice(["a", ""]), "expected texts"),
    (lambda: Grammar.choice("ab"), "expected texts"),
    (lambda: Grammar.choice(["a", 1]), "expected texts"),  # type: ignore[list-item]
    (lambda: Grammar.lark('start[temperature=0.5]: "a"'), "temperature"),
    (lambda: SamplingParams(grammar="a|b"), "expected a Grammar"),  # type: ignore[arg-type]
    (lambda: SamplingParams(grammar=PERSON), "expected a Grammar"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "reason"), REFUSED)
def test_what_is_no_grammar_is_refused(make: Callable[[], Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_text_about_temperature_is_no_temperature() -> None:
    text = 'start: "[temperature=" /[temperature=]+/\n'
    assert accepts(Grammar.lark(text), "[temperature==")


def test_params_with_a_grammar_are_a_value_like_others() -> None:
    params = SamplingParams(grammar=Grammar.regex("ab"), seed=3, n=2)
    assert params == SamplingParams().with_options(grammar=Grammar.regex("ab"), seed=3, n=2)
    assert hash(params) == hash(params.for_tokenizer(shared_tokenizer()))
    assert params.for_choice(1).grammar == params.grammar
    assert SamplingParams().for_tokenizer(None) == SamplingParams()


def test_a_grammar_without_a_tokenizer_is_an_error() -> None:
    params = SamplingParams(grammar=Grammar.regex("ab"))
    with pytest.raises(OptionError, match="tokenizer, and the model has none"):
        params.for_tokenizer(None)
    with pytest.raises(OptionError, match="not bound"):
        LogitsPipeline(params, (1,), (EOS,), VOCAB, torch.device("cpu"))


def test_a_grammar_can_be_bound_to_another_tokenizer() -> None:
    once = bound(Grammar.regex("ab"))
    assert begin(once) is not None
    again = once.bound(byte_tokenizer([b"ab"]))
    assert again.compiled is not once.compiled
