from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from fake_tokenizers import END, byte_tokenizer, text_tokenizer, word_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from outrider.engine.detokenize import Detokenizer
from outrider.engine.stopping import StopDecision, Stopper
from outrider.errors import OptionError
from outrider.sampling.params import SamplingParams

PROMPT = (7, 8)
unhurried = settings(deadline=None, max_examples=150)


def stopper(
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    eos: Sequence[int] = (),
    limit: int = 256,
    **options: Any,
) -> Stopper:
    return Stopper(
        SamplingParams(**options),
        eos,
        prompt_ids=PROMPT,
        max_new_tokens=limit,
        detokenizer=None if tokenizer is None else Detokenizer(tokenizer),
    )


def run(watch: Stopper, ids: Sequence[int]) -> tuple[str, int, str | None]:
    """Return the joined text, the number of tokens used and the finish reason."""
    text = ""
    for count, token in enumerate(ids, start=1):
        decision = watch.push(token)
        text += decision.text
        if decision.finish_reason is not None:
            return text, count, decision.finish_reason
    return text, len(ids), None


@pytest.mark.parametrize("place", range(6))
def test_an_end_of_text_id_ends_the_request_wherever_it_stands(place: int) -> None:
    """STOP-1: the id is kept, its text is not shown, and nothing after it counts."""
    ids = [10, 11, 12, 13, 14, 15]
    text = "".join(f"w{i}" for i in ids[:place])
    expected = (text, place + 1, "stop")
    assert run(stopper(word_tokenizer(), eos=[ids[place]]), ids) == expected
    assert run(stopper(word_tokenizer(), stop_token_ids=[ids[place]]), ids) == expected
    assert run(stopper(eos=[ids[place]]), ids) == ("", place + 1, "stop")


@pytest.mark.parametrize("place", range(6))
def test_a_stop_string_ends_the_request_with_the_token_that_completes_it(place: int) -> None:
    """STOP-2: whichever of the tokens of a block it is."""
    ids = [10, 11, 12, 13, 14, 15]
    watch = stopper(word_tokenizer(), stop=f"w{ids[place]}")
    assert run(watch, ids) == ("".join(f"w{i}" for i in ids[:place]), place + 1, "stop")


@pytest.mark.parametrize("limit", [3, 4, 5, 6])
def test_a_stop_at_or_before_the_limit_beats_the_limit(limit: int) -> None:
    """STOP-3: also when both come with the same token."""
    ids = [10, 11, 12, 20, 21, 22]
    for watch in (
        stopper(word_tokenizer(), eos=[12], limit=limit),
        stopper(word_tokenizer(), stop="w12", limit=limit),
        stopper(stopping_criteria=[lambda seen, _: seen[0, -1] == 12], limit=limit),
    ):
        text, count, reason = run(watch, ids)
        assert (count, reason) == (3, "stop")
        assert text in ("w10w11", "")
    assert run(stopper(word_tokenizer(), eos=[12], limit=2), ids) == ("w10w11", 2, "length")


def test_a_stop_string_over_several_tokens_cuts_text_and_ids_together() -> None:
    """STOP-4: the ids end with the token that completes the stop string."""
    tokenizer = text_tokenizer(["oh", " ha", "!"])
    watch = stopper(tokenizer, stop=[" ha ha ha"])
    assert run(watch, [0, 0, 1, 1, 1, 1, 2, 2]) == ("ohoh", 5, "stop")


def test_a_custom_criterion_is_asked_once_a_token_with_all_ids_so_far() -> None:
    """STOP-5: and its token's text is shown."""
    calls: list[list[int]] = []

    def criterion(input_ids: torch.Tensor, scores: object) -> torch.Tensor:
        assert input_ids.shape[0] == 1 and scores is None
        calls.append(input_ids[0].tolist())
        return input_ids[:, -1] == 12

    watch = stopper(word_tokenizer(), stopping_criteria=[criterion])
    assert run(watch, [10, 11, 12, 13]) == ("w10w11w12", 3, "stop")
    assert calls == [[7, 8, 10], [7, 8, 10, 11], [7, 8, 10, 11, 12]]


def test_every_criterion_is_asked_at_every_token() -> None:
    counts = [0, 0]

    def counting(index: int) -> bool:
        counts[index] += 1
        return counts[index] == 3

    criteria = [lambda *_: counting(0), lambda *_: counting(1)]
    run(stopper(stopping_criteria=criteria, eos=[12]), [10, 11, 12])
    assert counts == [3, 3]


@pytest.mark.parametrize("limit", [1, 2, 5, 6, 7])
def test_exactly_the_asked_number_of_tokens_is_emitted(limit: int) -> None:
    """STOP-6."""
    ids = range(10, 30)
    text = "".join(f"w{i}" for i in ids[:limit])
    assert run(stopper(word_tokenizer(), limit=limit), ids) == (text, limit, "length")


def test_a_request_without_end_of_text_ids_runs_to_its_limit() -> None:
    """STOP-7."""
    assert run(stopper(limit=15), [5, 6, 7] * 5) == ("", 15, "length")


def test_a_stop_string_split_over_rounds_is_never_shown_in_part() -> None:
    """STOP-8: "a" and "b" wait until they are known to be safe."""
    watch = stopper(text_tokenizer(["xa", "b", "cz"]), stop="abc")
    decisions = [watch.push(token) for token in (0, 1, 2)]
    assert decisions == [StopDecision("x"), StopDecision(""), StopDecision("", "stop")]


def test_held_back_text_comes_out_when_it_turns_out_safe() -> None:
    watch = stopper(text_tokenizer(["xa", "b", "d"]), stop="abc")
    assert [watch.push(token).text for token in (0, 1, 2)] == ["x", "", "abd"]


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_held_back_text_comes_out_at_the_end(reason: str) -> None:
    tokenizer = text_tokenizer(["xa", "b"])
    watch = stopper(tokenizer, stop="abc", limit=2 if reason == "length" else 9, eos=[2])
    assert run(watch, [0, 1, 2]) == ("xab", 2 if reason == "length" else 3, reason)


def test_no_stop_string_ends_the_text_before_the_least_number_of_tokens() -> None:
    """STOP-9: ids are masked by the sampler; stop strings count in the tokens after the least."""
    watch = stopper(word_tokenizer(), stop="w5", min_new_tokens=3)
    assert run(watch, [5, 5, 5, 6, 5, 6]) == ("w5w5w5w6", 5, "stop")


def test_a_stop_string_ended_too_early_does_not_count_later() -> None:
    watch = stopper(text_tokenizer(["ab", "x", "c"]), stop=["b", "abc"], min_new_tokens=1)
    assert run(watch, [0, 1, 2]) == ("abxc", 3, None)


def test_a_stop_string_may_begin_before_the_least_number_of_tokens() -> None:
    watch = stopper(text_tokenizer(["xa", "b", "c"]), stop=["abc"], min_new_tokens=2)
    assert run(watch, [0, 1, 2]) == ("x", 3, "stop")


def test_the_first_complete_stop_string_counts_and_the_longest_of_equals() -> None:
    tokenizer = text_tokenizer(["-abcd-"])
    assert run(stopper(tokenizer, stop=["abcd", "bc"]), [0])[0] == "-a"
    assert run(stopper(tokenizer, stop=["c", "abc", "bc"]), [0])[0] == "-"


def test_a_stop_string_is_found_in_characters_split_over_tokens() -> None:
    """SERVE-5: the text part, with an emoji as stop string."""
    ids = list("é漢🙂字".encode())
    assert run(stopper(byte_tokenizer(), stop="🙂"), ids) == ("é漢", 9, "stop")


def test_ignored_end_of_text_ids_end_nothing_but_stop_ids_still_do() -> None:
    watch = stopper(word_tokenizer(), eos=[11], ignore_eos=True, stop_token_ids=[13])
    assert run(watch, [10, 11, 12, 13]) == ("w10w11w12", 4, "stop")


def test_a_stop_string_that_names_a_special_token_stops_at_its_id() -> None:
    watch = stopper(text_tokenizer(["a", "b"]), stop=[END])
    assert watch.is_final(2) and not watch.is_final(0)
    assert run(watch, [0, 1, 2, 0]) == ("ab", 3, "stop")


def test_ids_that_end_a_request_by_themselves_are_known_beforehand() -> None:
    watch = stopper(eos=[3], stop_token_ids=[5])
    assert [token for token in range(8) if watch.is_final(token)] == [3, 5]
    assert not stopper(eos=[3], ignore_eos=True).is_final(3)


def test_stop_strings_without_a_tokenizer_are_refused() -> None:
    with pytest.raises(OptionError, match=r"stop=\('x',\) needs a tokenizer"):
        stopper(stop="x")


texts = st.text("abc", max_size=4)


@unhurried
@given(
    tokens=st.lists(texts.filter(bool), min_size=1, max_size=12),
    stops=st.lists(texts.filter(bool), max_size=3),
    least=st.integers(0, 3),
)
def test_streamed_text_is_the_whole_text_cut_at_the_first_stop(
    tokens: list[str], stops: list[str], least: int
) -> None:
    """STOP-2, STOP-8: nothing shown is ever taken back, and nothing safe is lost."""
    ids = range(len(tokens))
    watch = stopper(
        text_tokenizer(tokens), stop=stops, min_new_tokens=least, limit=max(least, len(tokens))
    )
    limit = max(least, len(tokens))
    text, count, reason = run(watch, ids)
    whole = "".join(tokens)
    from_here = len("".join(tokens[:least]))
    ends = [
        (end, end - len(stop))
        for end in range(from_here + 1, len(whole) + 1)
        for stop in stops
        if whole[:end].endswith(stop)
    ]
    if not ends:
        expected_reason = "length" if limit == len(tokens) else None
        assert (count, reason) == (len(tokens), expected_reason)
        assert text == whole if reason else whole.startswith(text)
        return
    end, start = min(ends)
    used = next(n for n in range(len(tokens) + 1) if len("".join(tokens[:n])) >= end)
    assert (text, count, reason) == (whole[:start], used, "stop")


@unhurried
@given(st.lists(texts.filter(bool), min_size=1, max_size=12), st.lists(texts.filter(bool)))
def test_text_is_held_back_only_while_it_may_become_a_stop_string(
    tokens: list[str], stops: list[str]
) -> None:
    watch = stopper(text_tokenizer(tokens), stop=stops)
    shown = whole = ""
    for token, text in enumerate(tokens):
        whole += text
        decision = watch.push(token)
        if decision.finish_reason:
            return
        shown += decision.text
        held = whole[len(shown) :]
        assert whole.startswith(shown)
        assert not held or any(stop.startswith(held) for stop in stops)
        assert not any(
            stop.startswith(whole[start:]) for stop in stops for start in range(len(shown))
        )
