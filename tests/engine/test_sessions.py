"""A conversation on one cache says what each turn would say from a cold start."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fake_tokenizers import word_tokenizer

from outrider.drafters.base import Drafter
from outrider.drafters.ngram import NgramDrafter
from outrider.engine.engine import Engine
from outrider.engine.session import Session
from outrider.errors import NumericsError, OptionError
from outrider.targets.base import Rows, ScoredRows
from outrider.targets.transformers import TransformersTarget
from support.runs import assert_same, collect, decode, draft_model, make_request, shared_target
from support.scripted import SamplingDrafter, ScriptedTarget, oracle, random_trees
from support.tiny import VOCAB, random_ids, tiny_model


class CountingTarget(TransformersTarget):
    """Counts the committed tokens it is fed; drafts apart."""

    fed = 0

    def score(self, rows: Sequence[Rows], layers: Sequence[int] = ()) -> ScoredRows:
        self.fed += sum(len(part.pending) for part in rows)
        return super().score(rows, layers)


@pytest.fixture(scope="module")
def target() -> CountingTarget:
    return CountingTarget(tiny_model())


DRAFTERS: dict[str, Callable[[], Drafter[Any] | None]] = {
    "none": lambda: None,
    "ngram": lambda: NgramDrafter(min_ngram=1),
    "noisy": lambda: draft_model("noisy"),
    "exact": lambda: draft_model("exact"),
    "trees": lambda: random_trees(VOCAB),
}


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("seed", range(3))
def test_a_second_turn_feeds_only_what_is_new(target: CountingTarget, name: str, seed: int) -> None:
    """CACHE-1: 19 cached after the first turn, 7 ids fed, 33 cached at the end."""
    drafter, sampling = DRAFTERS[name](), {"temperature": float(seed % 2), "seed": seed}
    with Session(target) as session:
        options: dict[str, Any] = {"max_new_tokens": 8, "session": session, **sampling}
        first = decode(target, make_request(random_ids(12, seed), **options), drafter)
        assert len(session.cached_tokens) == 19
        prompt = (*first.prompt_ids, *first.token_ids, *random_ids(6, seed + 50))
        fed = target.fed
        second = decode(target, make_request(prompt, **options), drafter)
        cold = decode(target, make_request(prompt, **(options | {"session": None})))
        assert_same(second, cold)
        assert second.stats.reused_tokens == 19
        assert len(session.cached_tokens) == 33
        if name == "none":
            assert target.fed - fed == (7 + 7) + (26 + 7)
    assert not target._sequences


@pytest.mark.parametrize("name", DRAFTERS)
def test_many_turns_say_what_cold_starts_say(target: CountingTarget, name: str) -> None:
    drafter = DRAFTERS[name]()
    history: tuple[int, ...] = ()
    with Session(target) as session:
        for turn in range(5):
            history += random_ids(2 + turn, turn)
            options: dict[str, Any] = {"max_new_tokens": 3 + 2 * turn, "seed": turn}
            warm = make_request(history, session=session, **options)
            found = decode(target, warm, drafter)
            assert_same(found, decode(target, make_request(history, **options)))
            assert session.cached_tokens == (history + found.token_ids)[:-1]
            history += found.token_ids


@pytest.mark.parametrize("shared", [0, 1, 7, 19, 20])
def test_a_turn_that_takes_another_way_reuses_the_part_in_common(
    target: CountingTarget, shared: int
) -> None:
    with Session(target) as session:
        first = decode(target, make_request(random_ids(20), max_new_tokens=6, session=session))
        prompt = (*first.prompt_ids[:shared], *random_ids(9, 77))
        assert prompt[shared] != (*first.prompt_ids, *first.token_ids)[shared]
        second = decode(
            target,
            make_request(prompt, max_new_tokens=6, session=session),
            draft_model("noisy"),
        )
        assert second.stats.reused_tokens == shared
        assert_same(second, decode(target, make_request(prompt, max_new_tokens=6)))


def test_the_same_prompt_again_reads_its_last_token_only(target: CountingTarget) -> None:
    request = random_ids(15, 3)
    with Session(target) as session:
        runs = [
            decode(target, make_request(request, max_new_tokens=5, session=session))
            for _ in range(2)
        ]
        shorter = decode(target, make_request(request[:6], max_new_tokens=5, session=session))
    assert_same(runs[1], runs[0])
    assert (runs[1].stats.reused_tokens, shorter.stats.reused_tokens) == (14, 5)
    assert_same(shorter, decode(target, make_request(request[:6], max_new_tokens=5)))


@pytest.mark.parametrize("way", ["eos", "stop", "sampled"])
def test_tokens_accepted_past_the_end_do_not_stay_in_the_cache(way: str) -> None:
    """CACHE-9: of a block of six, the request ends at the third token."""
    text = [10, 11, 12, 13, 14, 15]
    target = ScriptedTarget.saying(text, VOCAB)
    options: dict[str, Any] = {"max_new_tokens": 30, "logit_bias": {40: -math.inf}}
    drafter: Drafter[Any] = oracle(text * 5, 1)
    if way == "stop":
        options |= {"tokenizer": word_tokenizer(VOCAB + 1), "stop": "w12"}
    else:
        options |= {"eos": [12]}
    if way == "sampled":
        options |= {"temperature": 1e-3}
        drafter = SamplingDrafter(target._logits)
    with Session(target) as session:
        request = make_request((1,), session=session, **options)
        first = decode(target, request, drafter, rule="rejection", max_draft=6)
        assert first.token_ids == (10, 11, 12)
        assert first.stats.rounds == 1
        assert session.cached_tokens == (1, 10, 11)
        prompt = (1, *first.token_ids, *random_ids(5))
        second = decode(target, make_request(prompt, max_new_tokens=9, session=session))
        assert second.stats.reused_tokens == 3
        assert_same(second, decode(target, make_request(prompt, max_new_tokens=9)))


@pytest.mark.parametrize("rounds", [0, 1, 2, 3])
def test_a_stream_closed_early_leaves_a_cache_that_can_go_on(
    target: CountingTarget, rounds: int
) -> None:
    """CACHE-10: the session holds the emitted tokens but the last, and the text goes on from it."""
    prompt = random_ids(9, 8)
    plain = decode(target, make_request(prompt, max_new_tokens=25))
    drafter = draft_model("exact")
    with Session(target) as session:
        request = make_request(prompt, max_new_tokens=25, session=session)
        run = Engine(target, drafter, max_draft=4).run([request])
        taken = [token.id for _ in range(rounds) for token in next(run)[1].tokens]
        run.close()
        assert session.cached_tokens == (*prompt, *taken)[: -1 if taken else 0]
        # The reader saw three tokens only, whatever the round had added beyond them.
        seen = taken[:3]
        rest = make_request((*prompt, *seen), max_new_tokens=25 - len(seen), session=session)
        found = decode(target, rest, drafter, max_draft=4)
        assert (*seen, *found.token_ids) == plain.token_ids
    assert not target._sequences


def test_an_idle_session_is_not_touched_by_requests_beside_it(target: CountingTarget) -> None:
    with Session(target) as session, Session(target) as other:
        prompt = random_ids(9, 1)
        first = decode(target, make_request(prompt, max_new_tokens=6, session=session))
        decode(target, make_request(random_ids(30, 2), max_new_tokens=6, session=other))
        beside = [make_request(random_ids(5, seed), max_new_tokens=9) for seed in range(3)]
        collect(Engine(target, draft_model("noisy"), max_draft=5), beside)
        other.close()
        longer = (*prompt, *first.token_ids, 5)
        found = decode(target, make_request(longer, max_new_tokens=9, session=session))
        assert found.stats.reused_tokens == len(longer) - 2
        assert_same(found, decode(target, make_request(longer, max_new_tokens=9)))


def test_sessions_can_share_a_batch(target: CountingTarget) -> None:
    with Session(target) as one, Session(target) as two:
        for turn in range(3):
            prompts = [random_ids(5 + 3 * turn, 1), random_ids(8 + 2 * turn, 2)]
            wanted = [
                make_request(prompt, max_new_tokens=7, session=session)
                for prompt, session in zip(prompts, (one, two), strict=True)
            ]
            cold = [make_request(prompt, max_new_tokens=7) for prompt in prompts]
            found = collect(Engine(target, draft_model("noisy"), max_draft=5), wanted)
            for result, request in zip(found, cold, strict=True):
                assert_same(result, decode(target, request))


def test_a_session_serves_one_request_at_a_time() -> None:
    target = ScriptedTarget.saying([5, 6, 7], VOCAB)
    session = Session(target)
    wanted = [make_request((1,), max_new_tokens=9, session=session) for _ in range(2)]
    with pytest.raises(OptionError, match="in use by another request"):
        collect(Engine(target), wanted)
    run = Engine(target).run(wanted[:1])
    next(run)
    with pytest.raises(OptionError, match="in use by another request"):
        session.close()
    run.close()
    collect(Engine(target, max_batch=1), wanted)
    session.close()
    assert not target.held


def test_a_session_belongs_to_its_target() -> None:
    session = Session(ScriptedTarget.saying([5], VOCAB))
    with pytest.raises(OptionError, match="belongs to another model"):
        decode(shared_target(), make_request((1,), session=session))


def test_a_session_outlives_a_request_that_failed() -> None:
    """CACHE-7: what the failed request committed stays usable, and nothing else does."""

    def logits(context: tuple[int, ...]) -> list[float]:
        row = [0.0] * VOCAB
        row[len(context)] = 5.0 if 9 not in context else math.nan
        return row

    target = ScriptedTarget(logits, VOCAB)
    session = Session(target)
    with pytest.raises(NumericsError, match="position 10"):
        decode(target, make_request((1, 2, 3, 4, 5), session=session), oracle([5, 6, 7], 5))
    request = make_request((1, 2, 3, 4, 5, 5, 6), max_new_tokens=2, session=session)
    found = decode(target, request)
    assert (found.token_ids, found.stats.reused_tokens) == ((7, 8), 6)
