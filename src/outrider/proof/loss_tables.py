"""What a lossy rule costs as rows of text: for a terminal, and for a report."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.proof.base import Table
from outrider.proof.loss import Departure, Distance, Loss


def loss_tables(loss: Loss) -> list[Table]:
    """Return what was measured: sampled texts, then greedy ones."""
    return [
        Table(
            "1. Total variation of sampled text from the target's distribution (noise floor)",
            ["drafts", "draws", "accepted", "first tokens", "texts"],
            [_distance(one) for one in loss.distances],
        ),
        Table(
            "2. Greedy tokens that are not plain decoding's (under match)",
            ["drafts", "tokens", "accepted", "differ", "rounds"],
            [_departure(one) for one in loss.departures],
        ),
    ]


def loss_findings(loss: Loss) -> list[str]:
    """Return what there is to say beyond the tables."""
    ways: Sequence[Distance | Departure] = (*loss.distances[1:], *loss.departures)
    idle = dict.fromkeys(one.name for one in ways if not one.drafted)
    return [
        *(f"drafter dropped: {reason}" for reason in loss.dropped),
        *(f"note: {name} drafted nothing, so that nothing could pass" for name in idle),
    ]


def _distance(one: Distance) -> list[str]:
    return [
        one.name,
        f"{one.draws:,}",
        _accepted(one),
        f"{one.first_tokens:.3f} ({one.first_floor:.3f})",
        f"{one.texts:.3f} ({one.texts_floor:.3f})",
    ]


def _departure(one: Departure) -> list[str]:
    return [
        one.name,
        f"{one.tokens:,}",
        _accepted(one),
        f"{one.share:.1%} ({one.floor:.1%})",
        f"{one.rounds:,} ({one.rounds_matched:,})",
    ]


def _accepted(one: Distance | Departure) -> str:
    """Return the share of the drafted tokens that were accepted."""
    return f"{one.accepted / one.drafted:.0%}" if one.drafted else ""
