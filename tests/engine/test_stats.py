from __future__ import annotations

import json

import pytest

from outrider.engine.engine import Engine
from outrider.engine.stats import Stats
from outrider.types import NO_DRAFT, DraftTree
from support.runs import collect, decode, make_request
from support.scripted import ScriptedTarget, always, oracle
from support.tiny import VOCAB


def after(*rounds: tuple[int, int]) -> Stats:
    """Return the counters after rounds of chains: (drafted, accepted)."""
    stats = Stats()
    for drafted, accepted in rounds:
        stats.record(DraftTree.chain([1] * drafted), range(accepted), accepted + 1, cut=False)
    return stats


def test_rates_at_a_depth_are_over_the_drafts_that_reached_it() -> None:
    """SERVE-1: a round that drafts one token says nothing of the second."""
    stats = after((4, 3), (1, 1), (2, 0))
    assert stats.accepted_per_depth == (2 / 3, 1 / 2, 1 / 1, 0 / 1)
    assert stats.acceptance_length == pytest.approx(1 + 4 / 3)
    assert (stats.proposed, stats.accepted) == (7, 4)
    assert stats.acceptance_rate == 4 / 7


def test_conditional_rates_are_over_the_drafts_whose_parent_was_accepted() -> None:
    stats = after((4, 3), (1, 1), (2, 0))
    assert stats.conditional_acceptance == (2 / 3, 1.0, 1.0, 0.0)
    assert after((3, 0), (3, 1)).conditional_acceptance == (1 / 2, 0.0)


def test_acceptance_length_counts_the_token_of_the_target_and_accepted_does_not() -> None:
    """SERVE-9: three rounds that emit 4, 1 and 2 tokens."""
    stats = after((5, 3), (5, 0), (5, 1))
    assert stats.acceptance_length == 7 / 3
    assert stats.accepted / stats.rounds == 4 / 3


def test_a_round_without_drafts_lowers_the_acceptance_length_alone() -> None:
    stats = after((2, 2))
    stats.record(NO_DRAFT, (), 1, cut=False)
    assert stats.acceptance_length == 2
    assert (stats.acceptance_rate, stats.conditional_acceptance) == (1.0, (1.0, 1.0))


def test_a_tree_has_one_attempt_at_each_depth_it_was_followed_to() -> None:
    stats = Stats()
    tree = DraftTree((1, 2, 3, 4, 5), (-1, -1, 1, 1, 3))
    stats.record(tree, (1,), 2, cut=False)
    assert stats.proposed_at == [2, 2, 1]
    assert stats.attempted_at == [1, 1, 0]
    assert stats.accepted_at == [1, 0, 0]
    assert stats.conditional_acceptance == (1.0, 0.0)


def test_a_draft_after_the_end_of_a_request_was_not_attempted() -> None:
    stats = Stats()
    stats.record(DraftTree.chain([1, 2, 3]), (0,), 1, cut=True)
    assert stats.attempted_at == [1, 0, 0]
    assert (stats.tokens, stats.accepted) == (1, 1)


def test_rates_without_anything_to_divide_are_none() -> None:
    stats = Stats()
    assert stats.acceptance_length is stats.acceptance_rate is stats.tokens_per_second is None
    assert stats.accepted_per_depth == stats.conditional_acceptance == ()


def test_the_engine_counts_what_it_did() -> None:
    text = [5, 6, 7, 8, 9, 10]
    target = ScriptedTarget.saying(text, VOCAB, prompt=2)
    request = make_request((1, 2), max_new_tokens=12)
    stats = decode(target, request, oracle(text * 2, 2, wrong=0), max_draft=3).stats
    # Every third draft is wrong: two accepted and one recovered, round after round.
    assert (stats.prompt_tokens, stats.tokens, stats.rounds) == (2, 12, 4)
    assert stats.accepted_at[:2] == [4, 4]
    assert stats.proposed == sum(stats.proposed_at) == 3 + 3 + 3 + 2
    assert stats.conditional_acceptance == (1.0, 1.0, 0.0)
    assert stats.drafter_error is None


def test_times_add_up_and_all_go_into_json() -> None:
    target = ScriptedTarget.saying([5, 6], VOCAB)
    wanted = [make_request((1,), max_new_tokens=6) for _ in range(2)]
    for result in collect(Engine(target, always(5), max_draft=2), wanted):
        stats = result.stats
        parts = (stats.prefill_s, stats.draft_s, stats.score_s, stats.host_s)
        assert stats.wall_s == sum(parts)
        assert stats.draft_s > 0 < stats.host_s
        assert stats.tokens_per_second == stats.tokens / stats.wall_s
        record = json.loads(json.dumps(stats.to_dict()))
        assert record["tokens"] == 6
        assert record["acceptance_length"] == stats.acceptance_length
        assert record["conditional_acceptance"] == list(stats.conditional_acceptance)
