"""Requests end where plain decoding ends them, wherever in a block of accepted drafts that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from fake_tokenizers import byte_tokenizer, text_tokenizer, word_tokenizer
from torch import Tensor

from outrider.drafters.base import Drafter
from outrider.drafters.ngram import NgramDrafter
from outrider.drafters.suffix import SuffixDrafter
from outrider.engine.engine import Engine
from outrider.engine.result import Result
from outrider.types import DraftTree
from support.runs import assert_same, collect, decode, draft_model, make_request, shared_target
from support.scripted import SamplingDrafter, ScriptedDrafter, ScriptedTarget, always, oracle
from support.tiny import VOCAB, random_ids

PROMPT = random_ids(12, 7)


def drafters() -> list[Drafter[Any]]:
    return [
        NgramDrafter(min_ngram=1),
        SuffixDrafter(),
        draft_model("noisy"),
        draft_model("exact"),
    ]


def plain_ids(count: int = 40) -> tuple[int, ...]:
    return decode(shared_target(), make_request(PROMPT, max_new_tokens=count)).token_ids


def scripted(text: Sequence[int], max_draft: int = 6, **options: Any) -> tuple[Result, Result]:
    """Return a request's result with drafts that know the text, and plain's."""
    request = make_request((1,), **options)
    target = ScriptedTarget.saying(text, VOCAB)
    drafted = decode(target, request, oracle(list(text) * 9, 1), max_draft=max_draft)
    plain = decode(target, request)
    assert drafted.stats.rounds == 1 + (len(plain.token_ids) - 1) // (max_draft + 1)
    return drafted, plain


@pytest.mark.parametrize("place", range(0, 12, 2))
def test_an_accepted_end_of_text_ends_the_request(place: int) -> None:
    """STOP-1: for whichever token is declared the end, with every drafter."""
    end = plain_ids()[place]
    request = make_request(PROMPT, eos=[end], max_new_tokens=40)
    plain = decode(shared_target(), request)
    assert plain.token_ids == plain_ids()[: plain_ids().index(end) + 1]
    assert plain.finish_reason == "stop"
    for drafter in drafters():
        assert_same(decode(shared_target(), request, drafter), plain)


@pytest.mark.parametrize("place", range(0, 12, 3))
def test_a_stop_string_within_a_block_ends_the_request(place: int) -> None:
    """STOP-2: a text that repeats its prompt, which copying drafters accept in long runs."""
    prompt = (*PROMPT, *plain_ids(30), *PROMPT)
    tokenizer = word_tokenizer(VOCAB + 1)
    text = decode(shared_target(), make_request(prompt, max_new_tokens=30)).token_ids
    request = make_request(
        prompt, tokenizer=tokenizer, stop=f"w{text[place]}", max_new_tokens=30, logprobs=1
    )
    plain = decode(shared_target(), request)
    assert plain.finish_reason == "stop"
    for drafter in drafters():
        assert_same(decode(shared_target(), request, drafter, max_draft=8), plain)


@pytest.mark.parametrize("place", range(6))
def test_nothing_after_a_stop_is_visible_though_all_of_it_was_accepted(place: int) -> None:
    """STOP-3: the block holds the stop, the limit, and tokens after both."""
    text = [10, 11, 12, 20, 21, 22]
    found, plain = scripted(text, eos=[text[place]], max_new_tokens=6)
    assert_same(found, plain)
    assert found.token_ids == tuple(text[: place + 1])
    assert found.finish_reason == "stop"
    found, plain = scripted(text, eos=[12], max_new_tokens=5)
    assert (found.token_ids, found.finish_reason) == ((10, 11, 12), "stop")


@pytest.mark.parametrize("start", range(5))
def test_text_ids_logprobs_and_count_end_at_the_same_token(start: int) -> None:
    """STOP-4: a stop string over three tokens, at each place of a block of eight."""
    text = [10, 11, 12, 13, 14, 15, 16, 17]
    stop = "".join(f"w{token}" for token in text[start : start + 3])
    found, plain = scripted(
        text,
        max_draft=8,
        tokenizer=word_tokenizer(VOCAB + 1),
        stop=stop,
        logprobs=2,
        max_new_tokens=50,
    )
    assert_same(found, plain)
    assert found.text == "".join(f"w{token}" for token in text[:start])
    assert found.logprobs is not None
    assert len(found.token_ids) == len(found.logprobs) == found.stats.tokens == start + 3


@pytest.mark.parametrize("seed", range(4))
def test_a_criterion_is_asked_about_every_token(seed: int) -> None:
    """STOP-5: in order, with all ids so far, however many of them a round emits."""
    prompt = random_ids(10, seed)
    plain = decode(shared_target(), make_request(prompt, max_new_tokens=30))
    last = plain.token_ids[7]

    def run(drafter: Drafter[Any] | None) -> tuple[Result, list[tuple[int, ...]]]:
        seen: list[tuple[int, ...]] = []

        def criterion(input_ids: Tensor, scores: object) -> bool:
            seen.append(tuple(input_ids[0].tolist()))
            return seen[-1][-1] == last

        request = make_request(prompt, stopping_criteria=[criterion], max_new_tokens=30)
        return decode(shared_target(), request, drafter, max_draft=8), seen

    expected, calls = run(None)
    assert expected.token_ids == plain.token_ids[: plain.token_ids.index(last) + 1]
    assert calls == [(*prompt, *expected.token_ids[: i + 1]) for i in range(len(calls))]
    for drafter in [draft_model("unrelated"), *drafters()]:
        found, seen = run(drafter)
        assert_same(found, expected)
        assert seen == calls


@pytest.mark.parametrize("limit", [1, 2, 5, 6, 7])
def test_a_limit_is_met_exactly_and_nothing_is_drafted_past_it(limit: int) -> None:
    """STOP-6: with drafts of five; one token needs no draft at all."""
    text = random_ids(20, 3)
    drafter = oracle(text, 1)
    target = ScriptedTarget.saying(text, VOCAB)
    result = decode(target, make_request((1,), max_new_tokens=limit), drafter, max_draft=5)
    assert (result.token_ids, result.finish_reason) == (text[:limit], "length")
    assert all(len(tree) <= limit - 1 for tree in drafter.proposals)
    assert (limit > 1) == bool(drafter.proposals)
    assert max(len(rows.tree) for part in target.passes for rows in part) <= limit - 1


def test_a_text_without_an_end_token_ends_at_its_limit() -> None:
    """STOP-7."""
    prompt = (5, 6, 7, 8, 9, 10, 11, 7, 8)
    request = make_request(prompt, max_new_tokens=15)
    found = decode(shared_target(), request, NgramDrafter(length=3))
    assert_same(found, decode(shared_target(), request))
    assert found.finish_reason == "length"


@pytest.mark.parametrize("max_draft", [0, 1, 2, 3])
def test_a_stop_string_split_over_rounds_is_never_streamed(max_draft: int) -> None:
    """STOP-8: what may still become a stop string is held back."""
    tokenizer = text_tokenizer(["p", "xa", "b", "cz", "q"])
    request = make_request((0,), tokenizer=tokenizer, stop="abc", max_new_tokens=9)
    target = ScriptedTarget.saying([1, 2, 3], 5)
    engine = Engine(target, oracle([1, 2, 3], 1), max_draft=max_draft)
    chunks = [chunk for _, chunk, _ in engine.run([request])]
    assert "".join(chunk.text for chunk in chunks) == "x"
    assert all("a" not in chunk.text for chunk in chunks)
    assert [token.id for chunk in chunks for token in chunk.tokens] == [1, 2, 3]
    assert chunks[-1].finish_reason == "stop"


def test_a_minimum_length_holds_in_every_row_of_a_block() -> None:
    """STOP-9: the end of text is banned at the first nine places, and only there."""
    end = plain_ids()[3]
    request = make_request(PROMPT, eos=[end], min_new_tokens=9, max_new_tokens=40)
    plain = decode(shared_target(), request)
    assert end not in plain.token_ids[:9]
    assert plain.token_ids != plain_ids()
    for drafter in [*drafters(), always(end)]:
        assert_same(decode(shared_target(), request, drafter, max_draft=5), plain)


@pytest.mark.parametrize("max_draft", [0, 2, 3, 5, 9])
def test_a_minimum_length_ends_within_a_block_too(max_draft: int) -> None:
    """STOP-9: a target that would always end, and drafts that never do."""
    target = ScriptedTarget(lambda _: [0.0, 2.0, 3.0, 0.0], 4)
    request = make_request((0,), eos=[2], min_new_tokens=4, max_new_tokens=20)
    result = decode(target, request, always(1), max_draft=max_draft)
    assert (result.token_ids, result.finish_reason) == ((1, 1, 1, 1, 2), "stop")


def test_an_end_of_text_that_may_not_come_yet_is_no_reason_to_draft_less() -> None:
    found, plain = scripted([5, 6, 7], eos=[6], ignore_eos=True, max_new_tokens=20)
    assert_same(found, plain)
    assert (len(found.token_ids), found.finish_reason) == (20, "length")
    assert found.stats.rounds == 3


def test_a_drafted_end_of_text_takes_no_row() -> None:
    """The target's own draw ends the request without one; drafts after it could not be emitted."""
    target = ScriptedTarget.saying([5, 6, 7, 8], VOCAB)
    drafter = ScriptedDrafter(lambda *_: DraftTree.chain([5, 6, 7, 8]))
    result = decode(target, make_request((1,), eos=[7], max_new_tokens=9), drafter, max_draft=4)
    assert result.token_ids == (5, 6, 7)
    (rows,) = target.passes[0]
    assert rows.tree.tokens == (5, 6)
    assert (result.stats.rounds, result.tokens[-1].source) == (1, "bonus")


@pytest.mark.parametrize("seed", range(5))
def test_a_sampled_end_of_text_is_scored_and_still_the_last_token(seed: int) -> None:
    """A sampled draft may not be trimmed by what was drawn; what follows its end is dropped."""
    target = ScriptedTarget(lambda _: [0.0] * 4, 4)
    request = make_request((1,), temperature=1.0, seed=seed, eos=[2], max_new_tokens=60)
    drafter = SamplingDrafter(lambda _: [0.0] * 4)
    result = decode(target, request, drafter, rule="rejection", max_draft=8)
    assert any(2 in rows.tree.tokens[:-1] for part in target.passes for rows in part)
    assert result.finish_reason == "stop"
    assert result.token_ids.index(2) == len(result.token_ids) - 1
    assert result.tokens[-1].source == "accepted"


def test_one_request_that_stops_inside_a_block_leaves_the_others_alone() -> None:
    """BATCH-6: the finished row is frozen, and its neighbour ends as it does alone."""
    text = [10, 11, 12, 13, 14, 15]
    target = ScriptedTarget.saying(text, VOCAB)
    wanted = [
        make_request((1,), eos=[12], max_new_tokens=30),
        make_request((2,), max_new_tokens=30),
    ]
    first, second = collect(Engine(target, oracle(text * 6, 1), max_draft=5), wanted)
    assert (first.token_ids, first.finish_reason) == ((10, 11, 12), "stop")
    assert (first.stats.rounds, first.stats.tokens) == (1, 3)
    assert second.token_ids == tuple(text * 5)
    assert [len(part) for part in target.passes] == [2, 1, 1, 1, 1]


@pytest.mark.parametrize("max_draft", [0, 1, 5])
def test_characters_split_over_tokens_are_streamed_whole(max_draft: int) -> None:
    """SERVE-5: pieces joined are the text; no replacement character is ever shown."""
    text = "é漢字🙂 e\u0301!"
    ids = list(text.encode())
    target = ScriptedTarget.saying(ids, 257)
    request = make_request((1,), tokenizer=byte_tokenizer(), max_new_tokens=len(ids))
    engine = Engine(target, oracle(ids, 1), max_draft=max_draft)
    chunks = [chunk for _, chunk, _ in engine.run([request])]
    assert "".join(chunk.text for chunk in chunks) == text
    assert all("\ufffd" not in chunk.text for chunk in chunks)
    assert sum(len(chunk.tokens) for chunk in chunks) == len(ids)
