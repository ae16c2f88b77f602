"""Which tokens a grammar allows after any draft, whatever was looked at before."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLParserLimits
from llguidance.hf import from_tokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from outrider.errors import OptionError
from outrider.sampling.grammar import Grammar
from outrider.sampling.grammar_state import GrammarState, _limits_on_device, limits
from outrider.types import DraftTree
from support.byte_vocabulary import (
    EOS,
    TURN,
    VOCAB,
    allowed,
    begin,
    bound,
    byte_tokenizer,
    shared_tokenizer,
)

A, B, C, X, Y, ONE = (ord(letter) for letter in "abcxy1")
CPU = torch.device("cpu")
SCHEMA = Grammar.json_schema(
    {
        "type": "object",
        "properties": {
            "cat": {"enum": ["pq", "true", "é"]},
            "n": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        },
        "required": ["cat", "n"],
        "additionalProperties": False,
    }
)


def walk(seeds: list[int]) -> tuple[int, ...]:
    """Return a text of the schema that ever so many numbers choose, perhaps not to its end."""
    state = begin(SCHEMA)
    path: tuple[int, ...] = ()
    for seed in seeds:
        following = sorted(allowed(state, path) or ())
        path = (*path, following[seed % len(following)])
    return path


@given(
    texts=st.lists(st.lists(st.integers(0, 300), max_size=14), min_size=2, max_size=4),
    looks=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 14)), max_size=12),
    cut=st.integers(0, 14),
)
@settings(max_examples=30, deadline=None)
def test_what_is_allowed_depends_on_the_tokens_alone_and_not_on_where_one_has_looked(
    texts: list[list[int]], looks: list[tuple[int, int]], cut: int
) -> None:
    paths = [walk(text) for text in texts]
    state = begin(SCHEMA)
    for which, length in looks:
        state.mask(paths[which % len(paths)][:length])
    main = paths[0]
    state.append(main[:cut])
    for length in range(cut, len(main) + 1):
        fresh = begin(SCHEMA)
        fresh.append(main[:length])
        assert allowed(state, main[cut:length]) == allowed(fresh), main[:length]
        state.mask((X, Y))  # leads nowhere
        state.reachable(DraftTree.chain(paths[-1]))
        state.forced(4)


def test_a_mask_of_a_rejected_draft_is_not_mistaken_for_that_of_another_text() -> None:
    # Both have read as many lexemes, with white space before the next: llguidance 1.9.1 tells
    # them apart no further once it has gone back.
    grammar = Grammar.json_schema({"const": {"n": [1]}})
    one, other = tuple(b'{"n": '), tuple(b'{ "n" ')
    state = begin(grammar)
    assert ord("[") in (allowed(state, one) or ())
    assert allowed(state, other) == allowed(begin(grammar), other)
    assert ord(":") in (allowed(state, other) or ())


@pytest.mark.parametrize("prefix", ["", "x", "yx"])
def test_nor_where_a_token_goes_on_from_forced_bytes(prefix: str) -> None:
    tokenizer = byte_tokenizer([b"ab", b"ac"])
    rules = 'start: /y?x?/ "a" ("b" SPACE "1" | "c" SPACE "2")\nSPACE: / +/\n'
    compiled = Grammar.lark(rules).bound(tokenizer).compiled
    assert compiled is not None
    one, other = ((*prefix.encode(), merged, ord(" ")) for merged in (256, 257))
    state, fresh = (compiled.begin((258,), (), 260) for _ in range(2))
    assert allowed(state, one) == {ord(" "), ord("1")}
    assert allowed(state, other) == allowed(fresh, other) == {ord(" "), ord("2")}


def test_an_end_of_text_is_allowed_where_the_text_may_end_and_nothing_else_after_it() -> None:
    """GRAM-1"""
    state = begin(Grammar.regex("ab"))
    draft = (A, B, EOS, C)
    assert [allowed(state, draft[:length]) for length in range(5)] == [
        {A},
        {B},
        {EOS},
        {EOS},
        None,
    ]
    state.append(draft[:3])
    assert allowed(state) == allowed(state, (EOS, EOS)) == {EOS}
    assert allowed(state, (C,)) is None
    state.append((EOS,))
    assert allowed(state) == {EOS}


def test_an_end_is_refused_where_the_text_may_not_end_yet() -> None:
    state = begin(Grammar.regex("ab"))
    assert allowed(state, (A, EOS)) is None
    assert EOS in (allowed(begin(Grammar.regex("a*"))) or ())


def test_each_node_of_a_tree_has_the_prefix_of_its_own_branch() -> None:
    """GRAM-2"""
    state = begin(Grammar.regex("x|y1"))
    tree = DraftTree((X, Y, ONE, ONE), (-1, -1, 1, 0))
    assert state.reachable(tree) == [True, True, True, False]
    assert allowed(state, (X,)) == {EOS}
    assert allowed(state, (Y,)) == {ONE}


def test_what_hangs_below_a_refused_node_is_refused_and_an_end_has_no_children() -> None:
    state = begin(Grammar.regex("(ab)*"))
    tree = DraftTree((C, A, EOS, A, EOS), (-1, 0, -1, 2, 2))
    assert state.reachable(tree) == [False, False, True, False, True]


def test_a_rejected_draft_leaves_nothing_behind() -> None:
    """GRAM-5"""
    state = begin(Grammar.regex("ab|ba"))
    assert allowed(state, (A, B)) == {EOS}
    state.append((B,))
    assert allowed(state) == {A}
    state.append((A,))
    assert allowed(state) == {EOS}


def test_tokens_guessed_apart_from_one_another_are_refused_where_they_do_not_follow() -> None:
    """GRAM-6"""
    assert begin(Grammar.regex("ab")).reachable(DraftTree.chain([A, A])) == [True, False]


def test_every_end_of_text_of_the_model_may_end_it_and_no_other() -> None:
    text = Grammar.regex("a")
    assert allowed(begin(text, eos=(EOS, TURN)), (A,)) == {EOS, TURN}
    assert allowed(begin(text, eos=(TURN,)), (A,)) == {TURN}
    # The tokenizer's own end of text is none of the request's here.
    assert allowed(begin(text, eos=(TURN,)), (A, EOS)) is None


def test_a_stop_token_may_end_the_text_if_it_is_not_text_itself() -> None:
    text = Grammar.regex("a|ab")
    assert allowed(begin(text, stops=(TURN, C)), (A,)) == {B, EOS, TURN}


def test_without_an_end_of_text_the_stop_tokens_are_one_and_without_those_it_is_an_error() -> None:
    assert allowed(begin(Grammar.regex("a"), eos=(), stops=(C,)), (A,)) == {C}
    with pytest.raises(OptionError, match="stop_token_ids"):
        begin(Grammar.regex("a"), eos=())


@pytest.mark.parametrize("vocab_size", [VOCAB + 1, VOCAB + 300])
def test_ids_that_the_tokenizer_lacks_are_refused(vocab_size: int) -> None:
    state = begin(Grammar.regex("(.|\n)*"), vocab_size=vocab_size)
    assert max(allowed(state) or ()) == EOS
    assert allowed(state, (VOCAB,)) is None
    row = state.limits([()], CPU)
    assert row.shape == (1, vocab_size)
    assert bool((row[0, VOCAB:] == -math.inf).all())


def test_ids_that_the_target_lacks_do_not_matter() -> None:
    state = begin(Grammar.regex("(ab)*"), eos=(C,), vocab_size=200)
    assert state.limits([()], CPU).shape == (1, 200)
    assert state.limits([()], CPU)[0].isposinf().nonzero().flatten().tolist() == [A, C]


def test_scores_are_banned_row_by_row_and_left_alone_where_the_row_cannot_be_reached() -> None:
    state = begin(Grammar.regex("ab|ba"))
    scores = torch.arange(float(VOCAB)).repeat(4, 1).double()
    whole = scores.clone()
    state.apply(scores, [(), (A,), (C,), (B, A)])
    kept = [row.isfinite().nonzero().flatten().tolist() for row in scores]
    assert kept == [[A, B], [B], list(range(VOCAB)), [EOS]]
    assert torch.equal(scores[scores.isfinite()], whole[scores.isfinite()])


def test_what_is_no_number_stays_so() -> None:
    scores = torch.full((1, VOCAB), math.nan)
    begin(Grammar.regex("a")).apply(scores, [()])
    assert bool(scores.isnan().all())


def test_masks_unpack_the_same_on_a_device() -> None:
    masks = torch.randint(256, (3, 40), dtype=torch.uint8, generator=torch.Generator())
    assert torch.equal(limits(masks.numpy(), 301, CPU), _limits_on_device(masks, 301))


def test_forced_tokens_are_the_only_ones_allowed() -> None:
    state = begin(Grammar.json_schema({"const": {"cat": "pq", "n": [True, None]}}, compact=True))
    state.append((ord("{"),))
    forced = state.forced(100)
    assert bytes_of(forced) == b'"cat":"pq","n":[true,null]}'
    assert len(forced) < 27, "tokens of several bytes are used"
    for length, token in enumerate(forced):
        assert allowed(state, forced[:length]) == {token}
    assert state.forced(3) == forced[:3]
    state.append(forced)
    assert state.forced(5) == [], "an end is not worth drafting"


def test_nothing_is_forced_where_there_is_a_choice() -> None:
    state = begin(Grammar.choice(["cab", "cat", "x"]))
    assert state.forced(5) == []
    state.append((C,))
    assert state.forced(5) == [A]


def test_what_is_forced_after_a_path_is_what_is_forced_once_it_is_appended() -> None:
    """An end that may come now is a choice as well."""
    pattern = Grammar.regex("(cab|cat|xab?)y")
    for path in ((), (C,), (C, A), (X,), (X, A), (ord("y"),)):
        ahead, appended = begin(pattern), begin(pattern)
        assert ahead.forced(5, (C, A)) == []
        if allowed(ahead, path) is not None:
            appended.append(path)
            assert ahead.forced(5, path) == appended.forced(5)
    assert begin(pattern).forced(5, (X, A, B)) == [ord("y")]
    assert begin(Grammar.regex("ab?")).forced(5, (A,)) == []


def test_no_token_is_forced_that_the_target_does_not_have() -> None:
    state = begin(Grammar.choice(["atrue"]), stops=(X,), vocab_size=256)
    assert state.forced(5) == [A]


def test_the_ids_allowed_after_a_path_are_those_of_its_mask() -> None:
    state = begin(Grammar.regex("x|ab|ac"))
    assert state.allowed().tolist() == [A, X]
    assert state.allowed((A,)).tolist() == [B, C]
    assert state.allowed((B,)).tolist() == []


def bytes_of(ids: list[int]) -> bytes:
    text: str = shared_tokenizer().decode(ids)  # type: ignore[assignment]
    return text.encode()


def limited(grammar: str, items: int) -> GrammarState:
    """Return the state of a grammar that may not take more items of a parser than so many."""
    start = LLMatcher(
        from_tokenizer(shared_tokenizer()),  # type: ignore[arg-type]
        grammar,
        log_level=0,
        limits=LLParserLimits(step_max_items=items),
    )
    assert not start.is_error()
    return GrammarState(
        start.deep_copy, num_ids=VOCAB, ending_ids=[EOS], own_ending_ids=[EOS], vocab_size=VOCAB
    )


def test_a_grammar_too_complex_to_follow_allows_nothing_and_says_why() -> None:
    state = limited(LLMatcher.grammar_from_json_schema("{}"), 3)
    assert allowed(state) == set()
    reason = state.dead_end(())
    assert "allows no token" in reason and "items" in reason and "\n" not in reason
    assert allowed(state) == set(), "and it stays so"


def test_a_branch_too_complex_to_follow_does_not_harm_the_others() -> None:
    rules = 'start: "a" ("b" | "x" many)\nmany: (a | b | c)*\n'
    rules += 'a: "1"* "2"*\nb: "1"* "3"*\nc: "1"* a b\n'
    grammar = LLMatcher.grammar_from_lark(rules)
    free, state = limited(grammar, 100_000), limited(grammar, 60)
    for one in (free, state):
        one.append((A,))
    assert allowed(state, (X,)) == set() != allowed(free, (X,))
    assert allowed(state) == allowed(free) == {B, X}
    assert allowed(state, (B,)) == allowed(free, (B,)) == {EOS}
    state.append((B,))
    assert allowed(state) == {EOS}


def test_after_a_text_outside_the_grammar_nothing_is_allowed() -> None:
    state = begin(Grammar.regex("ab"))
    state.append((C,))
    assert allowed(state) == allowed(state, (A,)) == set()
    assert state.forced(3) == []


def test_a_dead_end_tells_the_grammar_from_the_other_options() -> None:
    state = begin(Grammar.regex("ab"))
    assert "other options" in state.dead_end(())


def test_a_bound_grammar_is_followed_by_each_request_for_itself() -> None:
    compiled = bound(Grammar.regex("ab")).compiled
    assert compiled is not None
    one, other = (compiled.begin((EOS,), (), VOCAB) for _ in range(2))
    one.append((A,))
    assert (allowed(one), allowed(other)) == ({B}, {A})


def test_a_grammar_whose_texts_the_vocabulary_cannot_spell_allows_nothing_there() -> None:

    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    few: PreTrainedTokenizerBase = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, eos_token="<|end|>"
    )
    compiled = Grammar.regex("ax|b").bound(few).compiled
    assert compiled is not None
    state = compiled.begin((3,), (), 4)
    assert allowed(state) == {0, 1}
    assert allowed(state, (0,)) == set()
    assert "no text in this vocabulary" in state.dead_end((0,))
    assert allowed(state, (1,)) == {3}
