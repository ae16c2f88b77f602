"""Drafts under a grammar, enumerated exactly: what is masked, cut or added leaves the law alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial

import pytest

from outrider.proof.enumeration import (
    Choices,
    Drafting,
    Model,
    Row,
    Text,
    continuations,
    enumerate_round,
    law_difference,
)
from outrider.proof.enumeration import VerificationRule as Rule
from outrider.proof.toys import chain_parents, random_model, sampled
from outrider.trees.layout import prune, row_paths, worth_scoring
from outrider.trees.runs import lengthen
from outrider.types import DraftTree
from outrider.verification import verify

VOCABULARY = 3
CHAINS = [chain_parents(1), chain_parents(3)]
TREES = [(-1, -1), (-1, -1, 0, 0, 1, 1), (-1, 0, -1, 2, 0)]
CASES = [
    *((rule, shape) for rule in ("rejection", "block", "traversal") for shape in CHAINS),
    *((rule, shape) for rule in ("rejection", "traversal") for shape in TREES),
]
Allows = Callable[[Text], frozenset[int]]
"""The tokens that a grammar allows after a text."""

cases = pytest.mark.parametrize(("name", "shape"), CASES)
seeds = pytest.mark.parametrize("seed", range(4))


def grammar(seed: int) -> Allows:
    """Return a grammar that leaves one to three tokens, which ones being a matter of the text."""

    @cache
    def allowed(text: Text) -> frozenset[int]:
        generator = random.Random(repr((seed, text)))
        count = generator.randint(1, VOCABULARY)
        return frozenset(generator.sample(range(VOCABULARY), count))

    return allowed


def masked(model: Model, allowed: Allows) -> Model:
    """Return a model held to a grammar: nothing at all where it has none of what is allowed."""

    @cache
    def distribution(text: Text) -> Row:
        kept = [
            weight if token in allowed(text) else Fraction(0)
            for token, weight in enumerate(model(text))
        ]
        total = sum(kept)
        return tuple(weight / total for weight in kept) if total else tuple(kept)

    return distribution


def models(seed: int) -> tuple[Model, Model, Allows]:
    """Return a target that is held to a grammar, a drafter that is not, and the grammar."""
    allowed = grammar(seed)
    return masked(random_model(seed, 3, zeros=0), allowed), random_model(seed + 9, 3), allowed


def differs(name: str, target: Model, drafting: Drafting) -> Text | None:
    """Return a text to which a round gives another probability than the target does."""
    rule: Rule = partial(verify, name)  # type: ignore[arg-type]
    emitted = enumerate_round(rule, target, drafting, 4).law
    return law_difference(emitted, continuations(target, (), 4))


def may_pass(tree: DraftTree, allowed: Allows) -> list[bool]:
    """Return which nodes the grammar allows, with all above them."""
    return [
        all(path[i] in allowed(path[:i]) for i in range(len(path))) for path in row_paths(tree)[1:]
    ]


def changed(drafting: Drafting, change: Callable[[DraftTree], DraftTree]) -> Drafting:
    """Return a drafting whose trees are changed before they are verified."""

    def draft(choices: Choices) -> DraftTree:
        return change(drafting(choices))

    return draft


@seeds
@cases
def test_drafts_drawn_from_the_masked_law_keep_the_targets(
    name: str, shape: tuple[int, ...], seed: int
) -> None:
    """Where the drafter has nothing of what is allowed, nothing is drafted."""
    target, drafter, allowed = models(seed)
    assert differs(name, target, sampled(masked(drafter, allowed), shape)) is None


@seeds
@cases
def test_what_hangs_on_a_refused_node_of_a_blind_draft_may_go(
    name: str, shape: tuple[int, ...], seed: int
) -> None:
    target, drafter, allowed = models(seed)

    def cut(tree: DraftTree) -> DraftTree:
        return prune(tree, worth_scoring(tree, may_pass(tree, allowed)))

    assert differs(name, target, changed(sampled(drafter, shape), cut)) is None


@pytest.mark.parametrize("name", ["rejection", "block", "traversal"])
def test_dropping_the_refused_node_itself_would_change_the_law(name: str) -> None:
    """The reason why it is scored: the enumeration sees what happens otherwise."""

    def cut_too_much(tree: DraftTree, allowed: Allows) -> DraftTree:
        return prune(tree, may_pass(tree, allowed))

    found = []
    for seed in range(4):
        target, drafter, allowed = models(seed)
        blind = sampled(drafter, chain_parents(2))
        found.append(differs(name, target, changed(blind, partial(cut_too_much, allowed=allowed))))
    assert any(text is not None for text in found)


@seeds
@pytest.mark.parametrize("name", ["match", "rejection", "traversal"])
def test_a_tree_that_was_worked_out_may_lose_what_is_refused_and_go_on_with_what_is_forced(
    name: str, seed: int
) -> None:
    target, _, allowed = models(seed)

    def following(path: Text, limit: int) -> list[int]:
        run: list[int] = []
        while len(run) < limit and len(allowed((*path, *run))) == 1:
            run.extend(allowed((*path, *run)))
        return run

    tree = DraftTree((0, 1, 2, 0, 1), (-1, -1, -1, 0, 1))
    held = lengthen(prune(tree, may_pass(tree, allowed)), 7, following)  # type: ignore[arg-type]
    assert all(may_pass(held, allowed))
    assert differs(name, target, lambda _: held) is None
