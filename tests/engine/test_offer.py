"""Parts of drafts: the likeliest nodes, never one without its parent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.engine.gains import Level
from outrider.engine.offer import Offer, Pick
from outrider.engine.seat import Member, Seat
from outrider.types import NO_DRAFT, ROOT, DraftTree
from support.scripted import silent


def seat(unread: int = 0) -> Seat:
    return Seat(Member(silent(), "silent", 15), unread)


def test_of_a_chain_a_beginning_is_taken() -> None:
    tree = DraftTree.chain([5, 6, 7], chances=[0.9, 0.5, 0.2])
    offer = Offer.of_tree(seat(), tree)
    part = offer.first(2)
    assert (part.tokens, part.parents, part.chances) == ((5, 6), (ROOT, 0), (0.9, 0.5))
    assert offer.first(3) is tree
    assert offer.first(0) is NO_DRAFT


GROWN = st.lists(st.tuples(st.integers(0, 100), st.floats(0.01, 1)), min_size=1, max_size=14)


@given(GROWN, st.booleans())
def test_of_a_tree_the_likeliest_nodes_are_taken_with_their_parents(
    grown: list[tuple[int, float]], claims: bool
) -> None:
    parents: list[int] = []
    chances: list[float] = []
    for node, (pick, chance) in enumerate(grown):
        parents.append(pick % (node + 1) - 1)
        chances.append(chance * (1.0 if parents[-1] == ROOT else chances[parents[-1]]))
    given_chances = tuple(chances) if claims else None
    tree = DraftTree(tuple(range(len(grown))), tuple(parents), None, given_chances)
    offer = Offer.of_tree(seat(), tree)
    assert offer.chances == sorted(offer.chances, reverse=True)
    for count in range(len(grown) + 1):
        part = offer.first(count)
        assert len(part) == count  # none was lost with a parent that was left out
        assert set(part.tokens) <= set(tree.tokens)
        assert Pick(offer, count).tokens == pytest.approx(sum(offer.chances[:count]))


def test_a_lookup_drafters_draft_is_there_already_and_a_draft_models_is_yet_to_be_paid() -> None:
    lookup = Offer.of_tree(seat(), DraftTree.chain([1, 2]))
    assert lookup.draft_seconds(2, 0.03) == 0
    model = Offer(seat(unread=100), [0.9, 0.8], horizon=10)
    assert model.draft_seconds(0, 0.03) == 0
    shared = model.draft_seconds(2, 0.03)
    assert 0 < shared < model.draft_seconds(2, 0.03, all_at_once=True)


def test_what_is_sure_comes_with_the_first_level_of_a_draft_to_come_and_costs_no_step() -> None:
    levels = [Level(0.8), Level(0.5, nodes=2.0)]
    offer = Offer.to_come(seat(), levels, 1.0, lead=3)
    assert offer.chances == [1.0, 1.0, 1.0, 0.8, 0.25, 0.25]
    assert [offer.ends_level(count) for count in range(1, 7)] == [*[False] * 3, True, False, True]
    assert [offer.budget(count) for count in (1, 4, 6)] == [4, 4, 5]
    alone = Offer.to_come(seat(), levels, 1.0)
    assert offer.draft_seconds(4, 1.0) == alone.draft_seconds(1, 1.0)
    assert not Offer.to_come(seat(), [], 1.0, lead=3).chances, "a draft of none of its own"
