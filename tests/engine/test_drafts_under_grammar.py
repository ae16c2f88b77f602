"""Drafters that see the grammar: what is drafted could be accepted, what is forced always is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from outrider import load
from outrider.drafters.base import Drafter, DraftGrammar, DraftRequest
from outrider.drafters.early_exit import EarlyExitDrafter
from outrider.drafters.grammar import GrammarDrafter
from outrider.drafters.model import ModelDrafter
from outrider.drafters.ngram import NgramDrafter
from outrider.drafters.prediction import PredictionDrafter
from outrider.drafters.suffix import SuffixDrafter
from outrider.engine.costs import DraftCosts
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.engine.result import Result
from outrider.sampling.grammar import Grammar
from outrider.targets.transformers import TransformersTarget
from outrider.types import DraftTree, Rule
from support.byte_vocabulary import EOS, TURN, VOCAB, accepts, bound, shared_tokenizer
from support.heads import eagle_drafter, medusa_drafter
from support.runs import assert_same, collect, make_request
from support.scripted import (
    SamplingDrafter,
    ScriptedDrafter,
    ScriptedTarget,
    always,
    random_trees,
    silent,
)
from support.simulated import SimulatedClock, on_clock
from support.tiny import noisy_copy, tiny_model

PROMPT = tuple(b'{"cat":"pq","n":[true]} again: ')
WIDTH = VOCAB + 5  # of a head wider than the tokenizer
A, B, C, X = (ord(letter) for letter in "abcx")
GRAMMARS = {
    "schema": Grammar.json_schema(
        {
            "type": "object",
            "properties": {
                "cat": {"enum": ["pq", "true", None]},
                "n": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
            },
            "required": ["cat", "n"],
            "additionalProperties": False,
        },
        compact=True,
    ),
    "regex": Grammar.regex("(true|null)( (cat|pq)){2,3}!"),
    "choice": Grammar.choice(["true cat", "true pq", "null"]),
    "lark": Grammar.lark('start: word (", " word)~2\nword: "cat" | "true" | /[a-d]{1,3}/\n'),
    "gbnf": Grammar.gbnf('root ::= "cat" ("pq" | "true" root)'),
}
MODES: dict[str, dict[str, Any]] = {"greedy": {}, "sampled": {"temperature": 1.0, "top_k": 40}}


@functools.cache
def model() -> Any:
    return tiny_model(vocab_size=WIDTH, scale=3.0)


@functools.cache
def target() -> TransformersTarget:
    return TransformersTarget(model())


@functools.cache
def near() -> TransformersTarget:
    return TransformersTarget(noisy_copy(model(), 0.005))


def draft_model(width: int = 1, ids: Any = None) -> ModelDrafter:
    return ModelDrafter(near(), vocab_size=WIDTH, shared_ids=VOCAB, width=width, ids=ids)


DRAFTERS: dict[str, Callable[[], Drafter[Any]]] = {
    "ngram": lambda: NgramDrafter(min_ngram=1),
    "suffix": SuffixDrafter,
    "prediction": PredictionDrafter,
    "grammar": GrammarDrafter,
    "model": draft_model,
    "model, trees": lambda: draft_model(3),
    "eagle": lambda: eagle_drafter(model(), vocab_size=WIDTH, draft_vocab_size=90),
    "eagle, chains": lambda: eagle_drafter(model(), width=1, vocab_size=WIDTH, draft_vocab_size=90),
    "medusa": lambda: medusa_drafter(model(), vocab_size=WIDTH),
    "medusa, chains": lambda: medusa_drafter(model(), width=1, vocab_size=WIDTH),
    "early-exit": lambda: EarlyExitDrafter(target().exit_at(1)),
    "blind trees": lambda: random_trees(WIDTH, 3),
    "nothing": silent,
}
DRAWN = [
    name for name in DRAFTERS if name.split(",")[0] in ("model", "eagle", "medusa", "early-exit")
]
CHAINS = [name for name in DRAFTERS if not DRAFTERS[name]().drafts_trees]


def requests(mode: str) -> list[Request]:
    return [
        make_request(
            PROMPT,
            eos=(EOS, TURN),
            tokenizer=shared_tokenizer(),
            grammar=bound(grammar),
            prediction=tuple(b'{"cat":"true","n":[true,false]}'),
            max_new_tokens=48,
            **MODES[mode] | {"seed": 3},
        )
        for grammar in GRAMMARS.values()
    ]


@functools.cache
def plain(mode: str) -> list[Result]:
    return collect(Engine(target()), requests(mode))


@pytest.mark.parametrize("max_draft", [6, "auto"])
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("mode", MODES)
def test_whoever_drafts_under_whatever_grammar_the_text_is_that_of_plain_decoding(
    drafter: str, mode: str, max_draft: Any
) -> None:
    engine = Engine(target(), DRAFTERS[drafter](), max_draft=max_draft)
    for found, expected in zip(collect(engine, requests(mode)), plain(mode), strict=True):
        assert_same(found, expected)


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal"])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_rules_that_reject_leave_greedy_text_under_a_grammar_as_it_is(
    drafter: str, rule: Rule
) -> None:
    if rule == "block" and drafter not in CHAINS:
        return
    engine = Engine(target(), DRAFTERS[drafter](), rule=rule, max_draft=6)
    for found, expected in zip(collect(engine, requests("greedy")), plain("greedy"), strict=True):
        assert_same(found, expected)


class _Watched(TransformersTarget):
    """Takes note of the drafts that it is given to score."""

    def __init__(self) -> None:
        super().__init__(model())
        self.trees: list[DraftTree] = []

    def score(self, rows: Any, layers: Any = ()) -> Any:
        self.trees = [*getattr(self, "trees", ()), *(part.tree for part in rows)]
        return super().score(rows, layers)


@pytest.mark.parametrize("rule", ["match", "rejection", "traversal"])
@pytest.mark.parametrize("drafter", DRAWN)
def test_what_models_and_heads_draw_under_a_grammar_is_what_it_allows(
    drafter: str, rule: Rule
) -> None:
    drawn: list[DraftTree] = []
    guesser = DRAFTERS[drafter]() if drafter != "early-exit" else None
    subject = _Watched()
    if guesser is None:
        guesser = EarlyExitDrafter(subject.exit_at(1))
    _note_proposals(guesser, drawn)
    engine = Engine(subject, guesser, rule=rule, max_draft=6)
    text = Grammar.regex("[a-d]{30}")
    request = make_request(
        PROMPT, eos=(EOS,), tokenizer=shared_tokenizer(), grammar=bound(text), temperature=1.0
    )
    (result,) = collect(engine, [request])
    assert accepts(text, result.text)
    nodes = [token for tree in drawn for token in tree.tokens]
    assert nodes and set(nodes) <= {*b"abcd", EOS, TURN}
    laws = [tree.q for tree in drawn if tree.q is not None]
    assert bool(laws) == (rule != "match")
    for q in laws:
        assert bool((q[:, [A, B, C, ord("d"), EOS, TURN]].sum(-1) > 1 - 1e-6).all())


def _note_proposals(drafter: Drafter[Any], noted: list[DraftTree]) -> None:
    propose = drafter.propose

    def noting(states: Any, budgets: Any) -> list[DraftTree]:
        trees = propose(states, budgets)
        noted.extend(trees)
        return trees

    drafter.propose = noting  # type: ignore[method-assign]


def flat(_: tuple[int, ...]) -> list[float]:
    return [0.0] * VOCAB


ROW_OF_B = [5.0 if token == B else 0.0 for token in range(VOCAB)]


def held(grammar: Grammar, **options: Any) -> Request:
    return make_request(
        (1,), eos=(EOS,), tokenizer=shared_tokenizer(), grammar=bound(grammar), **options
    )


def scored(target: ScriptedTarget) -> int:
    """Return how many drafted rows a target has scored."""
    return sum(len(part.tree) for rows in target.passes for part in rows)


@pytest.mark.parametrize("max_draft", [31, "auto"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("drafter", [silent, SuffixDrafter, GrammarDrafter])
def test_forced_tokens_are_proposed_whoever_drafts_and_none_of_them_is_rejected(
    drafter: Callable[[], Drafter[Any]], mode: str, max_draft: Any
) -> None:
    clock = SimulatedClock()
    subject = on_clock(ScriptedTarget(flat, VOCAB), clock)
    engine = Engine(subject, drafter(), max_draft=max_draft, clock=clock)
    if max_draft == "auto":  # what passes cost is learnt first
        collect(engine, [held(Grammar.regex("a{9}"), **MODES[mode])])
        subject.passes.clear()
    (result,) = collect(engine, [held(Grammar.regex("a{12}"), **MODES[mode])])
    assert result.text == "a" * 12
    assert result.stats.proposed == result.stats.accepted == scored(subject)
    assert result.stats.accepted >= (11 if max_draft == 31 else 1)


def test_a_forced_run_takes_one_pass_and_a_row_for_each_of_its_tokens() -> None:
    subject = ScriptedTarget(flat, VOCAB)
    (result,) = collect(Engine(subject, silent(), max_draft=31), [held(Grammar.choice(["abcabc"]))])
    assert result.stats.rounds == len(subject.passes) == 1
    assert scored(subject) == 6 == result.stats.accepted


@pytest.mark.parametrize("width", [1, 2])
def test_a_draft_model_goes_on_behind_what_is_forced_and_takes_no_pass_for_it(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    observe = DraftCosts.observe

    def noting(self: DraftCosts, *args: Any) -> None:
        steps.append(args[0])
        observe(self, *args)

    monkeypatch.setattr(DraftCosts, "observe", noting)
    subject, small = (ScriptedTarget(lambda _: ROW_OF_B, VOCAB) for _ in range(2))
    drafter = ModelDrafter(small, vocab_size=VOCAB, shared_ids=VOCAB, width=width)
    request = held(Grammar.regex("a{6}[bc]{9}"), max_new_tokens=10)
    engine = Engine(subject, drafter, max_draft=9)
    engine._members[0].is_warm = True  # so that its first proposal counts
    (result,) = collect(engine, [request])
    assert result.text == "a" * 6 + "b" * 4
    first = subject.passes[0][0].tree
    assert first.tokens[:6] == (A,) * 6 and first.tokens[6] == B and len(first) == 9
    # Of the tokens behind, a chain takes a pass each, a tree one a level.
    assert steps == [3 if width == 1 else 2]
    assert len(small.passes) == steps[0]


def test_a_draft_that_is_all_forced_takes_no_pass_of_a_draft_model() -> None:
    subject, small = (ScriptedTarget(lambda _: ROW_OF_B, VOCAB) for _ in range(2))
    drafter = ModelDrafter(small, vocab_size=VOCAB, shared_ids=VOCAB)
    request = held(Grammar.regex("a{30}"), max_new_tokens=15)
    (result,) = collect(Engine(subject, drafter, max_draft=4), [request])
    assert (result.text, len(small.passes)) == ("a" * 15, 0)
    assert result.stats.accepted == result.stats.proposed == 12


def test_without_drafters_or_speculation_nothing_is_forced_into_a_draft() -> None:
    request = held(Grammar.choice(["abcabc"]))
    for engine, asked in [
        (Engine(ScriptedTarget(flat, VOCAB)), request),
        (Engine(ScriptedTarget(flat, VOCAB), silent(), max_draft=0), request),
        (Engine(ScriptedTarget(flat, VOCAB), silent()), replace(request, speculate=False)),
        (Engine(ScriptedTarget(flat, VOCAB), silent()), replace(request, max_draft=0)),
        (Engine(ScriptedTarget(flat, VOCAB), silent()), replace(request, drafters=())),
    ]:
        (result,) = collect(engine, [asked])
        assert (result.text, result.stats.proposed) == ("abcabc", 0)


def test_a_request_that_names_its_drafters_has_its_forced_tokens_too() -> None:
    request = replace(held(Grammar.choice(["abcabc"])), drafters=("scripted",))
    engine = Engine(ScriptedTarget(flat, VOCAB), silent(), max_draft=4)
    (result,) = collect(engine, [request])
    assert result.stats.accepted == result.stats.proposed > 0


def test_what_the_grammar_refuses_is_not_scored() -> None:
    subject = ScriptedTarget(flat, VOCAB)
    (result,) = collect(Engine(subject, always(X), max_draft=4), [held(Grammar.regex("[ab]{6}"))])
    assert len(result.text) == 6
    assert scored(subject) == 0


def test_what_is_forced_follows_a_draft_along_each_of_its_leaves() -> None:
    tree = DraftTree((A, B), (-1, -1), None, (0.4, 0.5))
    subject = ScriptedTarget(flat, VOCAB)
    draft = ScriptedDrafter(lambda context, _: tree if len(context) == 1 else DraftTree())
    collect(Engine(subject, draft, max_draft=5), [held(Grammar.regex("aab|bca"))])
    first = subject.passes[0][0].tree
    # The likelier leaf first, and as much of the other as there is room for.
    assert first.tokens == (A, B, C, A, A)
    assert first.parents == (-1, -1, 1, 2, 0)
    assert first.chances == (0.4, 0.5, 0.5, 0.5, 0.4)


def test_no_draft_with_forced_tokens_is_longer_than_asked_for_or_than_the_request() -> None:
    for max_draft, max_new_tokens in [(3, 20), (9, 4)]:
        subject = ScriptedTarget(flat, VOCAB)
        engine = Engine(subject, always(A), max_draft=max_draft)
        (result,) = collect(engine, [held(Grammar.regex("a{12}"), max_new_tokens=max_new_tokens)])
        assert len(result.token_ids) == min(13, max_new_tokens)
        assert max(len(part.tree) for rows in subject.passes for part in rows) == min(
            max_draft, max_new_tokens - 1
        )


def test_a_stop_token_among_what_is_forced_ends_the_draft() -> None:
    subject = ScriptedTarget(flat, VOCAB)
    request = held(Grammar.choice(["aabaa"]), stop_token_ids=(B,))
    for drafter in (silent(), always(A)):
        (result,) = collect(Engine(subject, drafter, max_draft=9), [request])
        assert result.finish_reason == "stop" and result.token_ids[-1] == B
    assert all(B not in part.tree.tokens for rows in subject.passes for part in rows)


def test_a_drawn_node_that_is_refused_is_scored_and_what_hangs_on_it_is_not() -> None:
    """Whether a drawn node is submitted may not depend on its token, even a hopeless one."""
    law = torch.zeros(VOCAB, dtype=torch.float64)
    law[[A, X]] = 0.5
    draft = ScriptedDrafter(lambda *_: DraftTree.chain((A, X, A, A), law.expand(4, -1)))
    subject = ScriptedTarget(flat, VOCAB)
    request = held(Grammar.regex("[ab]{9}"), temperature=1.0)
    (result,) = collect(Engine(subject, draft, rule="rejection", max_draft=4), [request])
    assert len(result.text) == 9
    drafted = [part.tree.tokens for rows in subject.passes for part in rows if len(part.tree)]
    assert (A, X) in drafted and set(drafted) <= {(A, X), (A,)}


class _Looking(ScriptedDrafter):
    """Looks at what may come next, and after an a, whenever it is asked."""

    def __init__(self) -> None:
        super().__init__(self._look)
        self._grammar: DraftGrammar | None = None
        self.seen: list[tuple[list[int], list[int]] | None] = []

    def begin(self, request: DraftRequest) -> list[int]:
        self._grammar = request.grammar
        return super().begin(request)

    def _look(self, context: tuple[int, ...], budget: int) -> DraftTree:
        grammar = self._grammar
        if grammar is None:
            self.seen.append(None)
        else:
            self.seen.append((grammar.allowed().tolist(), grammar.allowed((A,)).tolist()))
        return DraftTree()


def test_a_drafter_is_told_the_grammar_and_may_look_ahead_in_it() -> None:
    drafter = _Looking()
    engine = Engine(ScriptedTarget(flat, VOCAB), drafter, max_draft=3)
    collect(engine, [held(Grammar.regex("a[bc]|x"), logit_bias={A: 5.0, B: 3.0})])
    assert drafter.seen[:2] == [([A, X], [B, C]), ([B, C], [])]
    drafter.seen.clear()
    collect(engine, [make_request((1,), max_new_tokens=2)])
    assert drafter.seen == [None]


def test_the_grammar_alone_may_be_the_drafter() -> None:
    decoder = load(model(), tokenizer=shared_tokenizer(), drafter="grammar", max_draft=8)
    options: dict[str, Any] = {"grammar": GRAMMARS["schema"], "stop_token_ids": (EOS,)}
    result = decoder.generate(PROMPT, **options)
    assert result.token_ids == decoder.without_drafter().generate(PROMPT, **options).token_ids
    assert result.stats.accepted == result.stats.proposed > 0
    assert decoder.generate(PROMPT, max_new_tokens=5).stats.proposed == 0


def test_blind_drawn_drafts_under_a_grammar_keep_the_law() -> None:
    # A drafter that does not say what it drafted before: its hopeless nodes stay and count.
    grammar, texts = Grammar.regex("ab|ba|xx"), ["ab", "ba", "xx"]
    row = [{A: 0.0, B: 0.7, X: 1.3}.get(token, -9.0) for token in range(VOCAB)]
    guess = [{A: 2.0, X: -2.0, B: 0.0, C: 1.5}.get(token, -9.0) for token in range(VOCAB)]
    drawing = SamplingDrafter(lambda _: guess)
    engine = Engine(
        ScriptedTarget(lambda _: row, VOCAB), drawing, rule="rejection", max_draft=3, max_batch=64
    )
    runs = 1200
    found = [
        result.text
        for result in collect(engine, [held(grammar, temperature=1.0, seed=s) for s in range(runs)])
    ]
    law = torch.tensor([row[A], row[B], row[X]]).softmax(-1).tolist()
    chi_square = sum(
        (found.count(text) - runs * chance) ** 2 / (runs * chance)
        for text, chance in zip(texts, law, strict=True)
    )
    assert chi_square < 13.9  # 2 degrees of freedom: one in a thousand, and the seeds are fixed
