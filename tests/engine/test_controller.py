"""The choice itself: what is taken of given offers at given costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from outrider.engine.controller import Controller
from outrider.engine.costs import PassCosts
from outrider.engine.offer import Offer
from outrider.engine.seat import Member, Seat
from outrider.types import DraftTree
from support.scripted import ScriptedDrafter, silent

PASS = 0.03


class Lookup(ScriptedDrafter):
    is_lookup = True


LOOKUP = Member(Lookup(lambda *_: DraftTree()), "lookup", 15)


def model(step: float) -> Member:
    member = Member(silent(), "model", 15)
    for _ in range(30):
        member.costs.observe(1, 0, step * PASS, PASS)
        member.costs.observe(4, 0, 4 * step * PASS, PASS)
    return member


def costs(rise: float) -> PassCosts:
    """Return costs of passes of which each row adds a share of a plain pass over one sequence."""
    return PassCosts.measured(
        (rows, 0.0, PASS * (1 + rise * (rows - 1)), sequences)
        for sequences in (1, 2, 4)
        for rows in (sequences, 2 * sequences, 8 * sequences, 32 * sequences)
    )


def controller(
    known: PassCosts, members: Sequence[Member] = (), rows: str = "ragged"
) -> Controller:
    def pass_rows(counts: Sequence[int]) -> int:
        return sum(counts) if rows == "ragged" else len(counts) * max(counts)

    return Controller(known, pass_rows, members)


def chain(*chances: float) -> Offer:
    """Offer a chain of a lookup drafter with these chances, on their word."""
    seat = Seat(LOOKUP, 0)
    return Offer(seat, list(chances), DraftTree.chain([1] * len(chances)))


def drafted(chances: Sequence[float], member: Member) -> Offer:
    return Offer(Seat(member, 0), list(chances))


def lengths(chosen: Controller, *offers: Sequence[Offer]) -> list[int]:
    decision = chosen.choose(list(offers), [10] * len(offers))
    return [0 if pick is None else pick.count for pick in decision.picks]


@pytest.mark.parametrize(
    ("rise", "expected"), [(0.0, 5), (0.05, 5), (0.15, 4), (0.35, 2), (0.6, 1), (0.95, 0)]
)
def test_a_token_is_scored_if_it_is_likelier_than_its_row_is_dear(
    rise: float, expected: int
) -> None:
    offer = chain(0.9, 0.5, 0.3, 0.2, 0.1)
    assert lengths(controller(costs(rise)), [offer]) == [expected]


def test_a_gain_that_is_next_to_nothing_is_not_worth_a_draft() -> None:
    assert lengths(controller(costs(0.1)), [chain(0.105)]) == [0]
    assert lengths(controller(costs(0.1)), [chain(0.2)]) == [1]


def test_an_empty_offer_is_no_draft() -> None:
    assert lengths(controller(costs(0.0)), []) == [0]
    assert lengths(controller(costs(0.0)), [chain()]) == [0]


def test_time_is_worth_more_the_more_it_has_brought_of_late() -> None:
    """The long-run rate counts: in good times a doubtful token is not worth its row."""
    doubtful = chain(0.9, 0.15)
    good = controller(costs(0.1))
    assert lengths(good, [doubtful]) == [2]
    for _ in range(60):
        decision = good.choose([[chain(*[0.99] * 8)]], [10])
        good.learn(decision, [9], decision.seconds, 0.0)
    assert good.gain > 3
    assert lengths(good, [doubtful]) == [1]


def test_the_price_never_falls_below_that_of_plain_decoding() -> None:
    bad = controller(costs(0.1))
    for _ in range(60):
        decision = bad.choose([[chain(0.9, 0.9)]], [10])
        bad.learn(decision, [1], decision.seconds, 0.0)
    assert bad.gain == 1


@pytest.mark.parametrize(("step", "expected"), [(0.02, 3), (0.2, 2), (0.45, 1), (0.9, 0)])
def test_a_draft_model_drafts_as_far_as_its_steps_pay(step: float, expected: int) -> None:
    member = model(step)
    offer = drafted([0.8, 0.4, 0.2], member)
    assert lengths(controller(costs(0.05), [member]), [offer]) == [expected]


def test_of_two_drafters_the_one_that_gains_more_is_taken() -> None:
    member = model(0.1)
    chosen = controller(costs(0.05), [member])
    for copy, guess, name in (
        (chain(0.9, 0.8, 0.7), drafted([0.9, 0.85, 0.8], member), "lookup"),  # a copy is free
        (chain(0.3), drafted([0.9, 0.8, 0.7], member), "model"),
    ):
        (pick,) = chosen.choose([[guess, copy]], [10]).picks
        assert pick is not None
        assert pick.offer.seat.member.name == name


@pytest.mark.parametrize("rows", ["ragged", "rectangle"])
def test_in_a_batch_the_likeliest_tokens_of_all_are_scored(rows: str) -> None:
    offers = [[chain(0.9, 0.8, 0.7)], [chain(0.5, 0.2)], [chain(0.05)], []]
    counts = lengths(controller(costs(0.1), rows=rows), *offers)
    assert counts[0] >= counts[1] >= counts[2]
    assert counts[0] > 0
    if rows == "ragged":
        assert counts == [3, 1, 0, 0]  # a row costs 0.31 tokens: a share of a pass that brings 4


def test_the_choice_of_a_batch_is_the_best_of_all_there_are() -> None:
    chances = [(0.9, 0.6, 0.2), (0.55, 0.5), (0.35,)]
    known = costs(0.12)
    plain = known.seconds(3, 3 * 10, 3)

    def value(counts: Sequence[int]) -> float:
        gained = sum(sum(own[:count]) for own, count in zip(chances, counts, strict=True))
        rows = 3 + sum(counts)
        return gained - 3 / plain * (known.seconds(rows, rows * 10, 3) - plain)

    best = max(product(range(4), range(3), range(2)), key=value)
    assert lengths(controller(known), *[[chain(*own)] for own in chances]) == list(best)


def test_a_draft_model_is_left_alone_when_only_a_few_requests_want_it() -> None:
    """It drafts for all in one go: too dear for one, cheap enough for four."""
    member = model(0.5)
    wanted = [drafted([0.8], member)]
    one = lengths(controller(costs(0.02), [member]), wanted, [], [], [])
    four = lengths(controller(costs(0.02), [member]), *[[drafted([0.8], member)]] * 4)
    assert four == [1, 1, 1, 1]
    assert one in ([0, 0, 0, 0], [1, 0, 0, 0])
    dear = model(1.2)
    assert lengths(controller(costs(0.02), [dear]), [drafted([0.9], dear)], [], [], []) == [0] * 4


def test_until_a_plain_pass_was_timed_nothing_is_drafted() -> None:
    known = PassCosts()
    chosen = controller(known)
    assert lengths(chosen, [chain(0.99)]) == [0]
    known.observe(1, 10, PASS)
    assert lengths(chosen, [chain(0.99)]) == [1]


def test_a_pass_much_wider_than_any_before_is_not_risked() -> None:
    known = PassCosts()
    known.observe(1, 10, PASS)
    chosen = controller(known)
    (first,) = lengths(chosen, [chain(*[0.99] * 15)])
    assert 2 <= first <= 4
    known.observe(1 + first, 10, PASS)
    (second,) = lengths(chosen, [chain(*[0.99] * 15)])
    assert first < second < 15


def test_a_plain_pass_comes_now_and_then_for_comparison() -> None:
    chosen = controller(costs(0.05))
    plain = []
    for at in range(200):
        decision = chosen.choose([[chain(0.6)]], [10])
        chosen.learn(decision, [1 + (at % 5 < 3)], decision.seconds, 0.0)
        if decision.picks == [None]:
            plain.append(at)
    assert 2 <= len(plain) <= 12


def test_a_drafter_whose_rounds_lose_time_is_taken_no_more_whatever_it_promises() -> None:
    hopeful = model(0.1)
    chosen = controller(costs(0.05), [hopeful])
    for _ in range(6):  # requests, in which its rounds take three passes and bring one token
        offer = drafted([0.9, 0.8], hopeful)
        for _ in range(4):
            decision = chosen.choose([[offer]], [10])
            who = (offer.seat,) if any(decision.picks) else ()
            chosen.learn(replace(decision, drafted_by=who), [1], 3 * PASS if who else PASS, 0.0)
    assert hopeful.ledger.is_closed
    assert lengths(chosen, [drafted([0.9, 0.8], hopeful)]) == [0]


def test_a_drafter_that_loses_time_at_one_request_rests_there_and_drafts_for_others() -> None:
    member = model(0.1)
    chosen = controller(costs(0.05), [member])
    bad, good = drafted([0.9, 0.8], member), drafted([0.9, 0.8], member)
    for _ in range(12):
        for offer, tokens in ((bad, 1), (good, 3)):
            decision = chosen.choose([[offer]], [10])
            who = (offer.seat,) if any(decision.picks) else ()
            chosen.learn(replace(decision, drafted_by=who), [tokens], decision.seconds, 0.0)
    assert bad.seat.is_resting and not member.ledger.is_closed
    assert lengths(chosen, [bad]) == [0] and lengths(chosen, [good]) == [2]


def test_requests_that_drafted_together_bear_alike_what_that_took() -> None:
    member = model(0.1)
    chosen = controller(costs(0.05), [member])
    offers = [drafted([0.9, 0.8], member) for _ in range(2)]
    for _ in range(12):
        decision = chosen.choose([[offer] for offer in offers], [10, 10])
        who = tuple(offer.seat for offer in offers) if any(decision.picks) else ()
        chosen.learn(replace(decision, drafted_by=who), [1, 3], decision.seconds, 0.0)
    assert [offer.seat.ledger.is_closed for offer in offers] == [True, False]


def test_one_interrupted_round_is_no_reason_for_a_drafter_to_rest() -> None:
    member = model(0.1)
    chosen = controller(costs(0.05), [member])
    offer = drafted([0.9, 0.8], member)
    decision = chosen.choose([[offer]], [10])
    assert any(decision.picks)
    chosen.learn(replace(decision, drafted_by=(offer.seat,)), [2], 100 * PASS, 0.0)
    assert not offer.seat.is_resting
