"""Every sampling option acts on every drafted position just as it does in plain decoding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor

from outrider.drafters.base import Drafter
from outrider.drafters.ngram import NgramDrafter
from outrider.engine.engine import Engine
from outrider.engine.result import Result
from outrider.errors import NumericsError, OptionError, PromptError
from outrider.types import DraftTree, Rule
from support.runs import assert_same, collect, decode, draft_model, make_request, shared_target
from support.scripted import (
    ScriptedDrafter,
    ScriptedTarget,
    always,
    oracle,
    random_tokens,
    random_trees,
)
from support.tiny import VOCAB, random_ids

PROMPT = (*random_ids(8, 3), 7, 8, 9, 1, 7, 8)


def drafters() -> list[Drafter[Any]]:
    return [
        NgramDrafter(min_ngram=1),
        draft_model("noisy"),
        draft_model("exact"),
        random_trees(VOCAB),
    ]


def plain(**options: Any) -> Result:
    return decode(shared_target(), make_request(PROMPT, **options))


OPTIONS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.2, "seed": 4242},
    "top_k": {"temperature": 1.3, "top_k": 5},
    "top_p": {"temperature": 1.3, "top_p": 0.6},
    "min_p": {"temperature": 1.5, "min_p": 0.2},
    "repetition_penalty": {"repetition_penalty": 1.7},
    "presence_penalty": {"presence_penalty": 2.0},
    "frequency_penalty": {"frequency_penalty": -2.0, "temperature": 1.0},
    "logit_bias": {"logit_bias": {3: 2.0, 5: -math.inf, 9: -100}, "temperature": 1.0},
    "bad_words": {"bad_words": [[9], [1, 7], [2, 3, 4]], "temperature": 1.0},
    "min_new_tokens": {"min_new_tokens": 12, "stop_token_ids": list(range(0, 64, 4))},
    "stop_token_ids": {"stop_token_ids": [11, 12, 13], "temperature": 1.0},
    "no_repeat_ngram": {"logits_processors": [NoRepeatNGramLogitsProcessor(2)]},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_each_option_says_the_same_with_and_without_drafts(option: str) -> None:
    """PROC-1, 3, 8, 11 and DIST-14: ids, reason and logprobs equal to plain's."""
    request = make_request(PROMPT, max_new_tokens=24, logprobs=2, **OPTIONS[option])
    expected = decode(shared_target(), request)
    for drafter in drafters():
        found = decode(shared_target(), request, drafter, max_draft=5)
        assert_same(found, expected)


def test_all_options_together_say_the_same() -> None:
    together: dict[str, Any] = {}
    for options in OPTIONS.values():
        together |= options
    request = make_request(PROMPT, max_new_tokens=24, **(together | {"temperature": 0.9}))
    expected = decode(shared_target(), request)
    for drafter in drafters():
        assert_same(decode(shared_target(), request, drafter, max_draft=5), expected)


def test_banned_ids_never_appear() -> None:
    """PROC-1, PROC-8: though plain without the bias says them, and drafters propose them."""
    banned = plain(max_new_tokens=8).token_ids[:4]
    request = make_request(PROMPT, logit_bias=dict.fromkeys(banned, -100), max_new_tokens=24)
    expected = decode(shared_target(), request)
    for drafter in [*drafters(), always(banned[0]), oracle(banned, len(PROMPT))]:
        found = decode(shared_target(), request, drafter)
        assert_same(found, expected)
        assert not set(banned) & set(found.token_ids)


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal"])
def test_min_p_makes_the_law_of_every_emitted_token(rule: Rule) -> None:
    """PROC-2: ids below the bound are always rejected; chi-square of the two that remain.

    1,000 tokens; the alarm is 10 deviations, far beyond one false alarm in 10^9.
    """
    logits = [math.log(p) for p in (0.5, 0.3, 0.15, 0.05)]
    for drafter in (random_tokens(4), always(2)):
        target = ScriptedTarget(lambda _: logits, 4)
        request = make_request((0,), temperature=1.0, min_p=0.5, max_new_tokens=1000, seed=3)
        ids = decode(target, request, drafter, rule=rule, max_draft=3).token_ids
        counts = torch.bincount(torch.tensor(ids), minlength=4).double()
        assert counts[2] == counts[3] == 0
        deviation = math.sqrt(1000 * 0.625 * 0.375)
        assert abs(float(counts[0]) - 625) < 10 * deviation


def test_penalties_grow_along_the_drafted_path() -> None:
    """PROC-4: each row is penalised for its own prefix, not for the prefix of the round."""
    row = [0.0] * 16
    row[7], row[3] = 2.0, 1.5
    target = ScriptedTarget(lambda _: row, 16)
    request = make_request((1,), presence_penalty=1.0, max_new_tokens=4)
    result = decode(target, request, always(7), max_draft=3)
    assert result.token_ids == (7, 3, 7, 7)
    assert [token.source for token in result.tokens[:2]] == ["accepted", "recovered"]
    assert_same(result, decode(target, request))


def test_frequency_penalties_of_either_sign_are_honoured() -> None:
    """PROC-3."""
    found = {}
    for penalty in (-2.0, 0.0, 2.0):
        request = make_request(PROMPT, frequency_penalty=penalty, max_new_tokens=24)
        found[penalty] = decode(shared_target(), request, NgramDrafter(min_ngram=1))
        assert_same(found[penalty], decode(shared_target(), request))
    assert found[-2.0].token_ids != found[2.0].token_ids


@pytest.mark.parametrize("rule", ["match", "rejection", "block", "traversal"])
def test_a_seed_belongs_to_its_request(rule: Rule) -> None:
    """PROC-5: alone, again, and among others."""
    engine = Engine(shared_target(), draft_model("noisy"), rule=rule, max_draft=5)
    wanted = [
        make_request(PROMPT, temperature=1.0, seed=seed, max_new_tokens=20)
        for seed in (11, 12, 13, 14)
    ]
    alone, again = (collect(engine, wanted[:1])[0] for _ in range(2))
    together = collect(engine, wanted)
    assert alone.token_ids == again.token_ids == together[0].token_ids
    assert len({result.token_ids for result in together}) == 4


@pytest.mark.parametrize("rule", ["match", "rejection", "block", "traversal"])
def test_temperature_is_honoured_under_every_rule(rule: Rule) -> None:
    """PROC-6: even logits over 16 ids; an alarm in a sound engine is rarer than 1 in 10^5."""
    target = ScriptedTarget(lambda _: [0.0] * 16, 16)
    request = make_request((0,), temperature=1.0, max_new_tokens=1600, seed=8)
    ids = decode(target, request, always(5), rule=rule, max_draft=3).token_ids
    counts = torch.bincount(torch.tensor(ids), minlength=16).double()
    chi_square = float(((counts - 100) ** 2 / 100).sum())
    assert chi_square < 15 + 6 * math.sqrt(30)


class Recorder:
    """A processor that keeps state: it bans id 5 at each third call."""

    def __init__(self) -> None:
        self.prefixes: list[tuple[int, ...]] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.prefixes.append(tuple(input_ids[0].tolist()))
        if len(self.prefixes) % 3 == 0:
            scores[:, 5] = -math.inf
        return scores


@pytest.mark.parametrize("rule", ["match", "rejection"])
def test_a_processor_with_state_sees_the_emitted_prefixes_and_no_others(rule: Rule) -> None:
    """PROC-7: once for each token, in order, whatever was drafted."""
    recorder = Recorder()
    request = make_request(PROMPT, logits_processors=[recorder], max_new_tokens=24)
    expected = decode(shared_target(), request)
    prefixes = [(*PROMPT, *expected.token_ids[:i]) for i in range(24)]
    assert recorder.prefixes == prefixes
    for drafter in drafters():
        recorder.prefixes.clear()
        assert_same(decode(shared_target(), request, drafter, rule=rule, max_draft=4), expected)
        assert recorder.prefixes == prefixes


def test_filters_that_make_no_difference_to_greedy_text_do_not_change_the_drafts() -> None:
    """PROC-9: the same number of tokens is proposed with and without top_p."""
    found = [
        decode(shared_target(), request, NgramDrafter(min_ngram=1))
        for request in (
            make_request(PROMPT, max_new_tokens=24),
            make_request(PROMPT, max_new_tokens=24, top_p=0.5, top_k=3, min_p=0.1),
        )
    ]
    assert_same(found[0], found[1])
    assert found[0].stats.proposed == found[1].stats.proposed > 0


def test_logprobs_are_plains_and_never_a_bare_zero() -> None:
    """PROC-10."""
    request = make_request(PROMPT, max_new_tokens=20, logprobs=3, seed=1)
    expected = decode(shared_target(), request)
    for drafter in drafters():
        found = decode(shared_target(), request, drafter)
        assert_same(found, expected)
        assert found.logprobs is not None
        for record in found.logprobs:
            assert len(record.top) == 3
            assert record.chosen < 0
            assert record.chosen == record.top[0][1]


def test_a_pair_of_tokens_stays_banned_across_the_end_of_a_block() -> None:
    """PROC-11: the first of the pair ends one block, the second would begin the next."""
    text = [8, 9, 10, 8, 9, 10]
    target = ScriptedTarget.saying(text, 16)
    request = make_request((1,), bad_words=[[9, 10]], max_new_tokens=12)
    expected = decode(target, request)
    for max_draft in (1, 2, 3, 5):
        found = decode(target, request, oracle(text * 2, 1), max_draft=max_draft)
        assert_same(found, expected)
    assert (9, 10) not in zip(expected.token_ids, expected.token_ids[1:], strict=False)


@pytest.mark.parametrize("top", [0, 2, 20])
def test_a_sampled_token_outside_the_filters_is_never_emitted(top: int) -> None:
    """DIST-15: top_k 2 leaves two ids, and the drafter proposes a third."""
    logits = [math.log(p) for p in (0.4, 0.3, 0.2, 0.1)]
    target = ScriptedTarget(lambda _: logits, 4)
    request = make_request(
        (0,), temperature=1.0, top_k=2, max_new_tokens=400, seed=top, logprobs=top
    )
    rules: tuple[Rule, ...] = ("match", "rejection", "block", "traversal")
    for rule in rules:
        ids = decode(target, request, always(2), rule=rule, max_draft=2).token_ids
        assert set(ids) == {0, 1}
        # Five deviations of a binomial of 400 trials.
        assert abs(ids.count(0) / 400 - 4 / 7) < 5 * math.sqrt(4 / 7 * 3 / 7 / 400)


def rotten(position: int, value: float) -> ScriptedTarget:
    """Return a target whose row for the token at a position holds one `value`."""

    def logits(context: tuple[int, ...]) -> list[float]:
        row = [0.0] * 8
        row[len(context) % 8] = 5.0
        if len(context) == position:
            row[3] = value
        return row

    return ScriptedTarget(logits, 8)


@pytest.mark.parametrize("rule", ["match", "rejection", "block", "traversal"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_name_the_request_and_the_position(
    temperature: float, rule: Rule
) -> None:
    """DIST-13: an error, whether the row belongs to a draft or not; never a silent token 0."""
    request = make_request((1,), name="request 7", temperature=temperature, max_new_tokens=9)
    for drafter in (None, always(4), oracle([1, 2, 3, 4, 5, 6, 7, 0], 1)):
        with pytest.raises(NumericsError, match="request 7: no token to choose at position 4"):
            decode(rotten(4, math.nan), request, drafter, rule=rule, max_draft=5)


def test_a_row_behind_a_rejection_may_hold_anything() -> None:
    """DIST-13: only rows that plain decoding would see can be at fault."""

    def logits(context: tuple[int, ...]) -> list[float]:
        row = [0.0] * 8
        row[5] = math.nan if 6 in context else 3.0
        return row

    target = ScriptedTarget(logits, 8)
    request = make_request((1,), max_new_tokens=9)
    assert_same(decode(target, request, always(6), max_draft=3), decode(target, request))


@pytest.mark.parametrize("rule", ["match", "rejection", "block", "traversal"])
def test_a_row_with_one_possible_token_draws_it(rule: Rule) -> None:
    """DIST-13: all others are -inf."""
    target = ScriptedTarget(lambda _: [-math.inf] * 5 + [0.0] + [-math.inf] * 2, 8)
    for temperature in (0.0, 1.0):
        request = make_request((1,), temperature=temperature, max_new_tokens=6, logprobs=1)
        for token in (5, 2):
            result = decode(target, request, always(token), rule=rule, max_draft=3)
            assert result.token_ids == (5,) * 6
            assert result.logprobs is not None
            assert {record.chosen for record in result.logprobs} == {0.0}


ALWAYS_ONE = always(1)
BAD: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "rule": (
        lambda: Engine(shared_target(), rule="loose"),  # type: ignore[arg-type]
        OptionError,
        "rule is 'loose'; it must be one of match, rejection, block",
    ),
    "max_draft": (
        lambda: Engine(shared_target(), always(1), max_draft=-1),
        OptionError,
        "max_draft is -1; it must be 'auto' or an integer of at least 0",
    ),
    "max_draft type": (
        lambda: Engine(shared_target(), always(1), max_draft=2.5),  # type: ignore[arg-type]
        OptionError,
        r"max_draft is 2\.5",
    ),
    "max_draft word": (
        lambda: Engine(shared_target(), always(1), max_draft="all"),  # type: ignore[arg-type]
        OptionError,
        "max_draft is 'all'; it must be 'auto' or",
    ),
    "no drafter": (
        lambda: Engine(shared_target(), ["suffix"]),  # type: ignore[list-item]
        OptionError,
        "drafters holds 'suffix'; each must be a Drafter",
    ),
    "a drafter twice": (
        lambda: Engine(shared_target(), [ALWAYS_ONE, ALWAYS_ONE]),
        OptionError,
        "the same drafter twice",
    ),
    "profile": (
        lambda: Engine(shared_target(), profile={"pass": {}}),
        OptionError,
        "profile is not what an engine's to_profile gives: KeyError",
    ),
    "max_batch": (
        lambda: Engine(shared_target(), max_batch=0),
        OptionError,
        "max_batch is 0; it must be an integer of at least 1",
    ),
    "empty prompt": (lambda: run([]), PromptError, "the prompt is empty"),
    "long prompt": (lambda: run([1] * 256), PromptError, "256 tokens; the model holds 256"),
    "unknown id": (lambda: run([1, 64]), PromptError, r"prompt id 64 is outside .* 0\.\.63"),
    "negative id": (lambda: run([-1]), PromptError, "prompt id -1"),
    "bias": (lambda: run([1], logit_bias={64: 1.0}), OptionError, "logit_bias holds 64"),
    "bad word": (lambda: run([1], bad_words=[[1, 70]]), OptionError, "bad_words holds 70"),
    "stop id": (lambda: run([1], stop_token_ids=[99]), OptionError, "stop_token_ids holds 99"),
    "stop": (lambda: run([1], stop="end"), OptionError, "needs a tokenizer"),
}


def run(prompt: list[int], **options: Any) -> Result:
    return decode(shared_target(), make_request(prompt, **options), always(1))


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_error_that_names_it(case: str) -> None:
    call, error, message = BAD[case]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_target(), "score", lambda _: pytest.fail("a pass was made"))
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_no_round_proposes_more_than_the_limit(limit: int) -> None:
    """DRAFT-3: of the engine, or of the drafter; the smaller one wins."""
    asked: list[int] = []

    def propose(_: tuple[int, ...], budget: int) -> DraftTree:
        asked.append(budget)
        return DraftTree.chain([1] * budget)

    target = ScriptedTarget.saying([1], 4)
    request = make_request((1,), max_new_tokens=30)
    result = decode(target, request, ScriptedDrafter(propose), max_draft=limit)
    assert max(asked, default=0) == limit
    assert result.stats.acceptance_length == pytest.approx(limit + 1, abs=0.3)
    copied = decode(target, request, NgramDrafter(min_ngram=1, length=max(limit, 1)), max_draft=9)
    assert len(copied.stats.proposed_at) == max(limit, 1)
