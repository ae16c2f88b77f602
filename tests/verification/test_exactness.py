"""Whatever is drafted, a round emits the target's joint law: checked exactly, in rationals."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import pytest
import torch

from outrider.proof.enumeration import (
    Choices,
    Drafting,
    Model,
    Row,
    continuations,
    double_tensor,
    enumerate_round,
    exact_array,
    law_difference,
    runs,
)
from outrider.proof.enumeration import VerificationRule as Rule
from outrider.proof.toys import (
    chain_parents,
    constant,
    fixed,
    one_hot_model,
    random_model,
    row,
    sampled,
)
from outrider.trees.drawn import DrawnGrowth
from outrider.trees.layout import row_paths
from outrider.trees.ranks import RankRecord
from outrider.types import DraftTree
from outrider.verification import verify

CHAIN_RULES: dict[str, Rule] = {
    "match": partial(verify, "match"),
    "rejection": partial(verify, "rejection"),
    "block": partial(verify, "block"),
    "traversal": partial(verify, "traversal"),
}
TREE_RULES = {name: rule for name, rule in CHAIN_RULES.items() if name != "block"}

SHAPES = {
    "one child": (-1,),
    "two children": (-1, -1),
    "three children": (-1, -1, -1),
    "two by two": (-1, -1, 0, 0, 1, 1),
    "chain with a sibling at each depth": (-1, -1, 0, 0, 2),
    "second child goes deepest": (-1, -1, 1, 2),
    "siblings apart in the list": (-1, 0, -1, 2, 0),
}
MODELS: dict[str, tuple[Model, Model]] = {
    "any": (random_model(1, 3), random_model(2, 3)),
    "other": (random_model(3, 3), random_model(4, 3)),
    "many zeros": (random_model(5, 3, zeros=4), random_model(6, 3, zeros=4)),
    "equal": (random_model(7, 3), random_model(7, 3)),
    "certain target": (one_hot_model(8, 3), random_model(9, 3)),
    "certain drafter": (random_model(10, 3), one_hot_model(11, 3)),
    "both certain": (one_hot_model(12, 3), one_hot_model(13, 3)),
}

chain_rules = pytest.mark.parametrize("rule", CHAIN_RULES.values(), ids=CHAIN_RULES.keys())
tree_rules = pytest.mark.parametrize("rule", TREE_RULES.values(), ids=TREE_RULES.keys())
models = pytest.mark.parametrize(("target", "drafter"), MODELS.values(), ids=MODELS.keys())
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


def assert_lossless(rule: Rule, target: Model, drafting: Drafting, length: int) -> None:
    emitted = enumerate_round(rule, target, drafting, length).law
    assert law_difference(emitted, continuations(target, (), length)) is None


@chain_rules
@models
@pytest.mark.parametrize("num_drafts", [1, 2, 3])
def test_sampled_chain_keeps_joint_law(
    rule: Rule, target: Model, drafter: Model, num_drafts: int
) -> None:
    drafting = sampled(drafter, chain_parents(num_drafts))
    assert_lossless(rule, target, drafting, length=num_drafts + 1)


@tree_rules
@models
@shapes
def test_sampled_tree_keeps_joint_law(
    rule: Rule, target: Model, drafter: Model, shape: tuple[int, ...]
) -> None:
    assert_lossless(rule, target, sampled(drafter, shape), length=4)


@models
@pytest.mark.parametrize(
    "parents",
    [*map(chain_parents, (1, 2, 3)), *SHAPES.values()],
    ids=["chain of 1", "chain of 2", "chain of 3", *SHAPES],
)
def test_traversal_never_accepts_fewer_than_rejection(
    target: Model, drafter: Model, parents: tuple[int, ...]
) -> None:
    drafting = sampled(drafter, parents)
    one_by_one = enumerate_round(TREE_RULES["rejection"], target, drafting, length=1).accepted
    whole_paths = enumerate_round(TREE_RULES["traversal"], target, drafting, length=1).accepted
    assert whole_paths >= one_by_one


@models
@pytest.mark.parametrize("num_drafts", [1, 2, 3])
def test_traversal_of_a_chain_is_block_verification(
    target: Model, drafter: Model, num_drafts: int
) -> None:
    drafting = sampled(drafter, chain_parents(num_drafts))
    rounds = [
        enumerate_round(CHAIN_RULES[name], target, drafting, length=num_drafts + 1)
        for name in ("block", "traversal")
    ]
    assert rounds[0] == rounds[1]


@tree_rules
@models
@pytest.mark.parametrize(
    "tree",
    [
        DraftTree((0, 1, 2), (-1, -1, -1)),
        DraftTree((2, 0, 1, 2, 0, 1), (-1, -1, 0, 0, 1, 1)),
        DraftTree((0, 0, 0), (-1, 0, 1)),
    ],
    ids=["level", "two by two", "chain"],
)
def test_deterministic_tree_keeps_joint_law(
    rule: Rule, target: Model, drafter: Model, tree: DraftTree
) -> None:
    assert_lossless(rule, target, fixed(tree), length=4)


@pytest.mark.parametrize("num_drafts", [0, 1, 3])
@chain_rules
def test_deterministic_chain_keeps_joint_law(rule: Rule, num_drafts: int) -> None:
    drafting = fixed(DraftTree.chain((1, 0, 1)[:num_drafts]))
    assert_lossless(rule, random_model(20, 3), drafting, length=4)


@chain_rules
def test_draft_may_end_after_a_token_for_what_that_token_was(rule: Rule) -> None:
    """A chain that stops after an unlikely token, but still submits it, anticipates nothing."""
    target, drafter = random_model(21, 3), random_model(22, 3, zeros=0)

    def draft(choices: Choices) -> DraftTree:
        tokens: tuple[int, ...] = ()
        laws: list[Row] = []
        while len(tokens) < 3:
            laws.append(drafter(tokens))
            tokens = (*tokens, choices.choose(laws[-1]))
            if laws[-1][tokens[-1]] < row(1, 2)[0]:
                break
        return DraftTree.chain(tokens, exact_array(laws))

    assert_lossless(rule, target, draft, length=4)


def experienced(width: int) -> RankRecord:
    """Return a record by which likely children are right, and unlikely ones hardly ever."""
    record = RankRecord(width)
    for _ in range(300):
        for law, right in (((0.9, 0.1, 0), 0), ((0.6, 0.4, 0), 0), ((0.2, 0.4, 0.4), 1)):
            record.learn(DraftTree((0, 1), (-1, -1), torch.tensor([law, law])), (right,))
    return record


def grown(drafter: Model, width: int, budget: int, depth: int) -> Drafting:
    """Draft a tree that grows by what is drawn: each level by all that was drawn above it."""
    record = experienced(width)

    def draft(choices: Choices) -> DraftTree:
        growth = DrawnGrowth(record, budget, depth)
        while growth.frontier:
            laws = [drafter(tuple(path)) for path in growth.paths()]
            tokens = [drawn_from(law, width, choices) for law in laws]
            chances = [
                [float(law[token]) for token in row] for law, row in zip(laws, tokens, strict=True)
            ]
            growth.add(tokens, chances, double_tensor(laws))
        tree = growth.tree(budget)
        above = [drafter(path) for path in row_paths(tree)]
        laws = [above[parent + 1] for parent in tree.parents]
        return DraftTree(tree.tokens, tree.parents, exact_array(laws))

    return draft


def drawn_from(law: Row, count: int, choices: Choices) -> list[int]:
    """Draw up to so many tokens without replacement."""
    tokens: list[int] = []
    while len(tokens) < count and any(left := without(law, tokens)):
        tokens.append(choices.choose(left))
    return tokens


def without(law: Row, tokens: list[int]) -> list[Fraction]:
    return [0 * one if token in tokens else one for token, one in enumerate(law)]


@tree_rules
@models
@pytest.mark.parametrize(("budget", "depth"), [(3, 2), (4, 3), (6, 4)])
def test_a_tree_that_grows_by_what_was_drawn_above_keeps_joint_law(
    rule: Rule, target: Model, drafter: Model, budget: int, depth: int
) -> None:
    drafting = grown(drafter, 2, budget, depth)
    assert_lossless(rule, target, drafting, length=3)


def test_how_such_a_tree_branches_depends_on_what_was_drawn() -> None:
    shapes = {tree.parents for tree, _ in runs(grown(random_model(2, 3), 2, 6, 4))}
    assert len(shapes) > 3


@pytest.mark.parametrize("name", ["rejection", "block", "traversal"])
@pytest.mark.parametrize("kept", [(4, 3, 0, 0), (0, 0, 2, 1)])
def test_filtered_target_law_is_what_is_emitted(name: Any, kept: Row) -> None:
    """DIST-15, PROC-2: drafts outside the target's filter are never emitted."""
    target = constant(row(*kept))  # type: ignore[arg-type]
    for drafting in (
        fixed(DraftTree.chain((2, 2))),
        sampled(constant(row(1, 2, 3, 4)), chain_parents(2)),
    ):
        assert_lossless(partial(verify, name), target, drafting, length=3)


@pytest.mark.parametrize("rule", [TREE_RULES["rejection"], TREE_RULES["traversal"]])
@pytest.mark.parametrize("names", ["any", "many zeros", "equal", "both certain"])
def test_tensors_give_the_law_of_exact_rows(rule: Rule, names: str) -> None:
    torch.set_num_threads(1)
    target, drafter = MODELS[names]
    drafting = sampled(drafter, (-1, -1, 0, 0))
    exact = enumerate_round(rule, target, drafting, length=3)
    floating = enumerate_round(rule, target, drafting, length=3, to_array=double_tensor)
    assert law_difference(floating.law, exact.law, tolerance=1e-12) is None
    assert float(floating.accepted) == pytest.approx(float(exact.accepted), abs=1e-12)
