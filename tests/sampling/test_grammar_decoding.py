"""Text that keeps to a grammar, the same with drafts as without, whoever drafts."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from outrider import load
from outrider.drafters.base import Drafter
from outrider.drafters.model import ModelDrafter
from outrider.drafters.suffix import SuffixDrafter
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.engine.result import Result
from outrider.engine.session import Session
from outrider.errors import NumericsError, OptionError
from outrider.sampling.grammar import Grammar
from outrider.targets.transformers import TransformersTarget
from outrider.types import DraftTree, Rule
from support.byte_vocabulary import (
    EOS,
    MERGED,
    TURN,
    VOCAB,
    accepts,
    begin,
    bound,
    shared_tokenizer,
)
from support.runs import assert_same, collect, decode, make_request
from support.scripted import (
    SamplingDrafter,
    ScriptedDrafter,
    ScriptedTarget,
    always,
    random_tokens,
    random_trees,
    silent,
)
from support.tiny import noisy_copy, tiny_model

PROMPT = tuple(b"Say it as JSON: ")
A, B, X, Y, ONE = (ord(letter) for letter in "abxy1")
GRAMMARS = {
    "schema": Grammar.json_schema(
        {
            "type": "object",
            "properties": {
                "cat": {"enum": ["pq", "true", "é", None]},
                "name": {"type": "string", "maxLength": 6},
                "n": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
            },
            "required": ["cat", "name", "n"],
            "additionalProperties": False,
        },
        compact=True,
    ),
    "lark": Grammar.lark('start: word (", " word)~2\nword: "cat" | "true" | /[a-d]{1,3}/\n'),
    "choice": Grammar.choice(["true", "true cat", "null", "pq"]),
}
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.0},
    "all at once": {
        "temperature": 0.8,
        "top_k": 20,
        "top_p": 0.95,
        "min_p": 0.01,
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.3,
    },
}


@functools.cache
def model() -> Any:
    return tiny_model(vocab_size=VOCAB + 5, scale=3.0)  # a head wider than the tokenizer


@functools.cache
def target() -> TransformersTarget:
    return TransformersTarget(model())


def draft_model(width: int = 1) -> ModelDrafter:
    near = TransformersTarget(noisy_copy(model(), 0.005))
    return ModelDrafter(near, vocab_size=VOCAB + 5, shared_ids=VOCAB, width=width)


def hints(mode: str) -> Callable[[tuple[int, ...]], list[float]]:
    """Return logits that know what plain decoding says, for trees that are partly right."""
    texts = [(*result.prompt_ids, *result.token_ids) for result in plain(mode)]

    def logits(context: tuple[int, ...]) -> list[float]:
        row = [0.0] * VOCAB
        for text in texts:
            if len(text) > len(context) and text[: len(context)] == context:
                row[text[len(context)]] = 1.0
        return row

    return logits


DRAFTERS: dict[str, Callable[[str], Drafter[Any]]] = {
    "suffix": lambda _: SuffixDrafter(),
    "chains": lambda _: random_tokens(VOCAB + 5),
    "trees": lambda mode: random_trees(VOCAB + 5, 3, knows=hints(mode)),
    "model": lambda _: draft_model(),
    "model, trees": lambda _: draft_model(3),
    "ends": lambda _: always(EOS),
    "nothing": lambda _: silent(),
}


def requests(mode: str) -> list[Request]:
    """Return two requests for each grammar."""
    return [
        make_request(
            (*PROMPT, *f"{seed} ".encode()),
            eos=(EOS, TURN),
            tokenizer=shared_tokenizer(),
            grammar=bound(grammar),
            max_new_tokens=60,
            logprobs=1,
            **MODES[mode] | {"seed": seed},
        )
        for grammar in GRAMMARS.values()
        for seed in (4, 7)
    ]


@functools.cache
def plain(mode: str) -> list[Result]:
    return [decode(target(), request) for request in requests(mode)]


@pytest.mark.parametrize("mode", MODES)
def test_what_is_written_belongs_to_the_grammar_and_ends_with_it(mode: str) -> None:
    for request, result in zip(requests(mode), plain(mode), strict=True):
        assert result.finish_reason == "stop"
        assert result.token_ids[-1] in (EOS, TURN)
        assert request.params.grammar is not None
        assert accepts(request.params.grammar, result.text)
    assert list(json.loads(plain(mode)[0].text)) == ["cat", "name", "n"]
    assert len({result.text for result in plain(mode)}) > len(GRAMMARS), "the prompt matters"


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("mode", MODES)
def test_drafts_change_nothing_under_a_grammar(drafter: str, mode: str) -> None:
    engine = Engine(target(), DRAFTERS[drafter](mode), max_draft=5)
    accepted = 0
    for found, expected in zip(collect(engine, requests(mode)), plain(mode), strict=True):
        assert_same(found, expected)
        accepted += found.stats.accepted
    assert accepted > 0 or drafter in ("suffix", "chains", "ends", "nothing")


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal"])
def test_every_rule_keeps_to_the_grammar(rule: Rule) -> None:
    engine = Engine(target(), draft_model(), rule=rule, max_draft=4)
    for request, result in zip(
        requests("sampled"), collect(engine, requests("sampled")), strict=True
    ):
        assert request.params.grammar is not None
        assert accepts(request.params.grammar, result.text) and result.finish_reason == "stop"


WEIGHTS = {A: 0.0, B: 0.7, X: 1.3, Y: 0.4, ONE: 2.0, EOS: 0.1}
ROW = [WEIGHTS.get(token, -9.0) for token in range(VOCAB)]
OTHER_ROW = [-weight for weight in ROW]


def law_of(grammar: Grammar, texts: Sequence[str]) -> list[float]:
    """Return the chance of each text, if every token is drawn from what the grammar leaves."""
    law = []
    for text in texts:
        state, chance = begin(grammar), 1.0
        for token in (*text.encode(), EOS):
            scores = torch.tensor([ROW], dtype=torch.float64)
            state.apply(scores, [()])
            chance *= float(scores.softmax(-1)[0, token])
            state.append((token,))
        law.append(chance)
    return law


@pytest.mark.parametrize("rule", ["rejection", "traversal"])
def test_rules_that_reject_keep_the_law_that_the_grammar_leaves(rule: Rule) -> None:
    # What may come second depends on what came first: a mask of another branch would show.
    grammar, texts = (
        bound(Grammar.regex("a[xy]|[bx]1?|yy")),
        ["ax", "ay", "b", "b1", "x", "x1", "yy"],
    )
    law = law_of(grammar, texts)
    assert sum(law) == pytest.approx(1)
    drafter = SamplingDrafter(lambda _: OTHER_ROW)
    target = ScriptedTarget(lambda _: ROW, VOCAB)
    engine = Engine(target, drafter, rule=rule, max_draft=3, max_batch=64)
    options: dict[str, Any] = {"eos": (EOS,), "tokenizer": shared_tokenizer(), "grammar": grammar}
    runs = 300
    found = [
        result.text
        for result in collect(
            engine, [make_request((7,), temperature=1.0, seed=s, **options) for s in range(runs)]
        )
    ]
    assert set(found) <= set(texts)
    chi_square = sum(
        (found.count(text) - runs * chance) ** 2 / (runs * chance)
        for text, chance in zip(texts, law, strict=True)
    )
    assert chi_square < 22.5  # 6 degrees of freedom: one in a thousand, and the seeds are fixed


def test_a_batch_holds_each_request_to_its_own_grammar() -> None:
    wanted = [*requests("greedy")[::2], *requests("sampled")[1::2]]
    expected = [*plain("greedy")[::2], *plain("sampled")[1::2]]
    wanted.append(make_request(PROMPT, max_new_tokens=9))
    expected.append(decode(target(), wanted[-1]))
    for found, alone in zip(
        collect(Engine(target(), DRAFTERS["trees"]("greedy"), max_draft=4), wanted),
        expected,
        strict=True,
    ):
        assert_same(found, alone)


def test_each_turn_of_a_session_begins_its_grammar_anew() -> None:
    session = Session(target())
    with session:
        for turn in (PROMPT, (*PROMPT, *b"again ")):
            options: dict[str, Any] = {
                "eos": (EOS,),
                "tokenizer": shared_tokenizer(),
                "grammar": bound(GRAMMARS["schema"]),
            }
            found = decode(
                target(),
                make_request(turn, session=session, **options),
                DRAFTERS["trees"]("greedy"),
            )
            assert_same(found, decode(target(), make_request(turn, **options)))


def test_a_target_that_goes_astray_is_held_to_the_grammar_at_every_drafted_position() -> None:
    """GRAM-6"""
    # Independent guesses [a, a], of which the grammar lets only the first pass.
    stubborn = ScriptedTarget(
        lambda _: [9.0 if t == A else 1.0 * (t == B) for t in range(VOCAB)], VOCAB
    )
    request = make_request(
        (1,), eos=(EOS,), tokenizer=shared_tokenizer(), grammar=bound(Grammar.regex("ab"))
    )
    result = decode(stubborn, request, always(A), max_draft=4)
    assert (result.text, result.finish_reason) == ("ab", "stop")
    # The guesses after the first are let go, and what is forced after it takes their place.
    assert (result.stats.proposed, result.stats.accepted) == (2, 2)


def test_drafts_beyond_the_end_of_the_grammar_are_let_go() -> None:
    """GRAM-1"""
    say = ScriptedTarget.saying((A, B, EOS), VOCAB)
    draft = ScriptedDrafter(lambda context, _: DraftTree.chain((A, B, EOS, X)[len(context) - 1 :]))
    request = make_request(
        (1,), eos=(EOS,), tokenizer=shared_tokenizer(), grammar=bound(Grammar.regex("ab"))
    )
    assert decode(say, request, draft, max_draft=4).text == "ab"


def test_a_draft_that_is_rejected_at_once_leaves_the_grammar_where_it_was() -> None:
    """GRAM-5"""
    say = ScriptedTarget.saying((B, A, EOS), VOCAB)
    draft = ScriptedDrafter(lambda *_: DraftTree.chain((A, B)))
    request = make_request(
        (1,), eos=(EOS,), tokenizer=shared_tokenizer(), grammar=bound(Grammar.regex("ab|ba"))
    )
    assert decode(say, request, draft, max_draft=2).text == "ba"


@pytest.mark.parametrize("favourite", [X, Y])
def test_a_branch_of_a_tree_is_held_to_the_grammar_of_its_own_tokens(favourite: int) -> None:
    """GRAM-2"""

    def logits(context: tuple[int, ...]) -> list[float]:
        wanted = favourite if len(context) == 1 else ONE
        return [5.0 if token == wanted else 0.0 for token in range(VOCAB)]

    tree = DraftTree((X, Y, ONE, ONE), (-1, -1, 1, 0))
    draft = ScriptedDrafter(lambda context, _: tree if len(context) == 1 else DraftTree())
    request = make_request(
        (1,), eos=(EOS,), tokenizer=shared_tokenizer(), grammar=bound(Grammar.regex("x|y1"))
    )
    found = decode(ScriptedTarget(logits, VOCAB), request, draft, max_draft=4)
    assert found.text == {X: "x", Y: "y1"}[favourite]


def test_drafting_may_stop_in_the_middle_of_a_text() -> None:
    """GRAM-3"""
    expected = plain("greedy")[0]

    def first_rounds_only(context: tuple[int, ...], budget: int) -> DraftTree:
        start = len(context) - len(expected.prompt_ids)
        return DraftTree.chain(
            expected.token_ids[start : start + min(3, budget)] if start < 8 else ()
        )

    found = decode(target(), requests("greedy")[0], ScriptedDrafter(first_rounds_only), max_draft=3)
    assert_same(found, expected)
    assert 0 < found.stats.accepted < len(expected.token_ids) - 1


def test_the_log_probabilities_are_the_targets_own_before_the_grammar() -> None:
    flat = ScriptedTarget(lambda _: [0.0] * VOCAB, VOCAB)
    request = make_request(
        (1,),
        eos=(EOS,),
        tokenizer=shared_tokenizer(),
        grammar=bound(Grammar.regex("a")),
        logprobs=0,
    )
    result = decode(flat, request)
    assert result.logprobs is not None
    found = [record.chosen for record in result.logprobs]
    assert found == pytest.approx([-torch.tensor(float(VOCAB)).log().item()] * 2)


def test_no_processor_of_the_callers_undoes_what_the_grammar_bans() -> None:
    def favour_x(input_ids: Tensor, scores: Tensor) -> Tensor:
        return torch.zeros_like(scores).index_fill_(1, torch.tensor([X]), 9.0)

    request = make_request(
        PROMPT,
        eos=(EOS,),
        tokenizer=shared_tokenizer(),
        grammar=bound(Grammar.regex("[ab]x?")),
        logits_processors=(favour_x,),
    )
    assert decode(target(), request, always(X)).text == "ax"


def test_what_ends_the_text_early_ends_it_before_its_grammar_does() -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"max_new_tokens": 2}, "tr", "length"),
        ({"stop": ("u",)}, "tr", "stop"),
        ({"stop_token_ids": (ord("u"),)}, "tr", "stop"),
    ]
    for options, text, reason in cases:
        spelled = ScriptedTarget.saying((*b"true", EOS), VOCAB)
        request = make_request(
            (1,),
            eos=(EOS,),
            tokenizer=shared_tokenizer(),
            grammar=bound(Grammar.regex("[a-z]+")),
            **options,
        )
        found = decode(spelled, request)
        assert (found.text, found.finish_reason) == (text, reason)


def test_an_end_that_is_ignored_is_said_over_and_over() -> None:
    request = make_request(
        PROMPT,
        eos=(EOS,),
        tokenizer=shared_tokenizer(),
        grammar=bound(Grammar.regex("ab")),
        ignore_eos=True,
        max_new_tokens=5,
    )
    for drafter in (None, always(EOS)):
        found = decode(target(), request, drafter)
        assert found.text == "ab" and found.token_ids[-3:] == (EOS,) * 3
        assert found.finish_reason == "length"


@pytest.mark.parametrize("mode", ["greedy", "sampled"])
@pytest.mark.parametrize("rule", ["match", "rejection"])
def test_a_dead_end_is_an_error_of_one_line_that_names_request_position_and_reason(
    rule: Rule, mode: str
) -> None:
    request = make_request(
        (1, 2),
        eos=(EOS,),
        tokenizer=shared_tokenizer(),
        grammar=bound(Grammar.regex("ab")),
        logit_bias={B: -float("inf")},
        name="request 7",
        **MODES[mode],
    )
    reason = "request 7: no token to choose at position 3: the other options ban every token"
    with pytest.raises(NumericsError, match=reason):
        decode(target(), request, always(A), rule=rule)


def test_too_short_a_text_is_a_dead_end_and_not_a_text_outside_the_grammar() -> None:
    request = make_request(
        PROMPT, eos=(EOS,), grammar=bound(Grammar.choice(["pq"])), min_new_tokens=8
    )
    with pytest.raises(NumericsError, match="other options ban every token"):
        decode(target(), request)


def test_the_words_of_the_vocabulary_are_used_where_the_text_is_forced() -> None:
    request = make_request(
        PROMPT, eos=(EOS,), tokenizer=shared_tokenizer(), grammar=bound(Grammar.choice(["true"]))
    )
    result = decode(target(), request)
    assert result.text == "true"
    assert result.token_ids == (256 + MERGED.index(b"true"), EOS)


def test_a_decoder_binds_the_grammar_to_its_own_tokenizer() -> None:
    decoder = load(model(), tokenizer=shared_tokenizer(), drafter="ngram")
    options: dict[str, Any] = {"grammar": GRAMMARS["schema"], "stop_token_ids": (EOS,)}
    result = decoder.generate(PROMPT, **options)
    assert accepts(GRAMMARS["schema"], result.text)
    assert decoder.without_drafter().generate(PROMPT, **options).token_ids == result.token_ids
    assert "".join(chunk.text for chunk in decoder.stream(PROMPT, **options)) == result.text
    (other,) = decoder.generate_batch([PROMPT], **options, n=2, temperature=1.0, seed=1)
    assert [accepts(GRAMMARS["schema"], choice.text) for choice in other.choices] == [True, True]


def test_a_grammar_that_cannot_be_followed_is_an_error_before_any_work() -> None:
    decoder = load(model(), tokenizer=shared_tokenizer(), drafter="ngram")
    with pytest.raises(OptionError, match="unclosed group"):
        decoder.generate(PROMPT, grammar=Grammar.regex("("), stop_token_ids=(EOS,))
    with pytest.raises(OptionError, match="stop_token_ids"):
        decoder.generate(PROMPT, grammar=Grammar.regex("a"))
    with pytest.raises(OptionError, match="tokenizer, and the model has none"):
        load(model(), drafter="ngram").generate(PROMPT, grammar=Grammar.regex("a"))
