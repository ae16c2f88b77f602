"""Exact enumeration of one round in rationals: every draft, every decision, with its probability.

Rows are numpy object arrays of fractions, or torch tensors where a test wants the rules in
floating point; the rules cannot tell the difference.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch

from outrider.types import DraftTree, Verification
from outrider.verification import Randomness, TargetRows

Outcome = TypeVar("Outcome")
Row: TypeAlias = tuple[Fraction, ...]
Law: TypeAlias = dict[tuple[int, ...], Fraction]
Model: TypeAlias = Callable[[tuple[int, ...]], Row]
"""Distribution of the next token after the tokens of this round so far."""
Rule: TypeAlias = Callable[[TargetRows, DraftTree, Randomness], Verification]
Drafting: TypeAlias = Callable[["Choices"], DraftTree]
ToArray: TypeAlias = Callable[[Sequence[Any]], Any]


def row(*numbers: int | str) -> Row:
    """Read a distribution: row("1/3", "2/3"), row(".5", ".3", ".2"), or integer weights."""
    weights = [Fraction(number) for number in numbers]
    return tuple(weight / sum(weights) for weight in weights)


# Pairs (p, q) of constant laws, for which the literature or exact enumeration gives values.
A = (row("1/3", "2/3"), row("2/3", "1/3"))
B = (row(".5", ".3", ".2"), row(".2", ".3", ".5"))
C = (row(".5", ".3", ".2"), row(".8", ".1", ".1"))
D = (row(1, 2, 3), row(1, 2, 3))
F = (row(4, 3, 2, 1), row(1, 2, 3, 4))
G = (row(9, 64, 64, 9), row(144, 49, 144, 36))


def exact_array(values: Sequence[Any]) -> Any:
    """Make an array of fractions: the exact stand-in for a tensor."""
    array = np.empty(np.shape(values), dtype=object)
    array[...] = values
    return array


def double_array(values: Sequence[Any]) -> Any:
    """Make a numpy array of doubles, much faster than fractions and exact to 15 digits."""
    return np.array(values, dtype=object).astype(float)


def double_tensor(values: Sequence[Any]) -> Any:
    """Make a float64 tensor of fractions."""
    return torch.tensor(double_array(values))


class Choices:
    """One run through a random experiment; `choose` takes a prescribed branch, then the first."""

    def __init__(self, prescribed: Sequence[int]) -> None:
        self.taken = list(prescribed)
        self.supports: list[list[int]] = []
        self.probability = Fraction(1)

    def choose(self, weights: Sequence[Fraction]) -> int:
        """Return an index in proportion to weights; all possible ones get their turn."""
        support = [index for index, weight in enumerate(weights) if weight > 0]
        assert support and all(weight >= 0 for weight in weights)
        step = len(self.supports)
        self.supports.append(support)
        if step == len(self.taken):
            self.taken.append(0)
        index = support[self.taken[step]]
        # The sum of floats is 1 but for rounding; that of fractions is exact.
        self.probability = self.probability * weights[index] / sum(weights)
        return index


def runs(experiment: Callable[[Choices], Outcome]) -> Iterator[tuple[Outcome, Fraction]]:
    """Run an experiment once down each of its branches; yield results and probabilities."""
    prescribed: list[int] | None = []
    while prescribed is not None:
        choices = Choices(prescribed)
        yield experiment(choices), choices.probability
        taken, supports = choices.taken, choices.supports
        while taken and taken[-1] == len(supports[len(taken) - 1]) - 1:
            taken.pop()
        prescribed = [*taken[:-1], taken[-1] + 1] if taken else None


@dataclass
class EnumeratedRandomness:
    """`Randomness` of the rules, one branch at a time; refuses to give a stream out twice."""

    choices: Choices
    keys: set[int] = field(default_factory=set)

    def accept(self, key: int, probability: Any) -> bool:
        self._claim(key)
        assert 0 <= probability <= 1
        return self.choices.choose([probability, 1 - probability]) == 0

    def draw(self, key: int, weights: Any) -> int:
        self._claim(key)
        return self.choices.choose(weights.tolist())

    def _claim(self, key: int) -> None:
        assert key not in self.keys, f"decision {key} taken twice"
        self.keys.add(key)


@dataclass
class ModelRows:
    """Target rows of a tree under a model; refuses to answer a row twice."""

    target: Model
    tree: DraftTree
    to_array: ToArray = exact_array
    choices: Choices | None = None
    asked: dict[int, Any] = field(default_factory=dict)

    def prefix(self, row: int) -> tuple[int, ...]:
        if row == 0:
            return ()
        return (*self.prefix(self.tree.parents[row - 1] + 1), self.tree.tokens[row - 1])

    def probs(self, row: int) -> Any:
        assert row not in self.asked, f"row {row} asked for twice"
        self.asked[row] = self.to_array(self.target(self.prefix(row)))
        return self.asked[row]

    def token(self, row: int) -> int:
        assert self.choices is not None
        return self.choices.choose(self.probs(row).tolist())

    def assert_untouched(self) -> None:
        for row, answer in self.asked.items():
            expected = self.to_array(self.target(self.prefix(row)))
            assert answer.tolist() == expected.tolist(), f"row {row} was modified"


@dataclass(frozen=True)
class Round:
    """Joint law of what a round emits, continued by the target to `length` tokens."""

    law: Law
    accepted: Fraction
    """Expected number of accepted tokens."""


def enumerate_round(
    rule: Rule, target: Model, drafting: Drafting, length: int, to_array: ToArray = exact_array
) -> Round:
    """Work out one round over all drafts and decisions."""

    law: Law = defaultdict(Fraction)
    accepted = Fraction(0)
    for tree, chance in runs(drafting):
        if tree.q is not None:
            tree = DraftTree(tree.tokens, tree.parents, to_array(tree.q.tolist()))
        for verification, probability in runs(partial(_verify, rule, target, tree, to_array)):
            drafted = tuple(tree.tokens[node] for node in verification.path)
            accepted += len(drafted) * chance * probability
            emitted = (*drafted, verification.next_token)
            for text, continuation in continuations(target, emitted, length).items():
                law[text] += chance * probability * continuation
    return Round(dict(law), accepted)


def _verify(
    rule: Rule, target: Model, tree: DraftTree, to_array: ToArray, choices: Choices
) -> Verification:
    rows = ModelRows(target, tree, to_array, choices)
    verification = rule(rows, tree, EnumeratedRandomness(choices))
    rows.assert_untouched()
    parents = [tree.parents[node] for node in verification.path]
    assert parents == [-1, *verification.path][: len(parents)], "not a path from the root"
    return verification


def first_token(rule: Rule, p: Row, drafting: Drafting) -> Row:
    """Return the law of the first token that a round emits where the target always says p."""
    law = enumerate_round(rule, constant(p), drafting, length=1).law
    return tuple(law.get((token,), Fraction(0)) for token in range(len(p)))


def continuations(target: Model, start: tuple[int, ...], length: int) -> Law:
    """Return the target's law of texts of `length` tokens that begin with `start`."""
    law: Law = {start[:length]: Fraction(1)}
    for _ in range(length - len(start)):
        law = {
            (*text, token): probability * chance
            for text, probability in law.items()
            for token, chance in enumerate(target(text))
            if chance > 0
        }
    return law


def assert_same_law(law: Mapping[tuple[int, ...], Any], other: Law, tolerance: float = 0) -> None:
    """Compare two laws; texts of no probability may be missing."""
    for text in law.keys() | other.keys():
        assert abs(law.get(text, 0) - other.get(text, 0)) <= tolerance, text


def constant(distribution: Row) -> Model:
    """Return the model that says the same in every context."""
    return lambda _: distribution


def random_model(seed: int, vocab_size: int, zeros: int = 1) -> Model:
    """Return a model with another distribution in each context, some entries being zero."""

    @cache
    def distribution(context: tuple[int, ...]) -> Row:
        generator = random.Random(repr((seed, context)))
        weights = [generator.choice([0] * zeros + [1, 2, 3, 5]) for _ in range(vocab_size)]
        return row(*weights) if any(weights) else row(*[1] * vocab_size)

    return distribution


def one_hot_model(seed: int, vocab_size: int) -> Model:
    """Return a model that is certain of its next token, another one in each context."""

    @cache
    def distribution(context: tuple[int, ...]) -> Row:
        token = random.Random(repr((seed, context))).randrange(vocab_size)
        return row(*(int(token == index) for index in range(vocab_size)))

    return distribution


def sampled(drafter: Model, parents: Sequence[int]) -> Drafting:
    """Draft a tree of this shape, siblings without replacement as long as q has any to give."""

    def draft(choices: Choices) -> DraftTree:
        tokens: list[int] = []
        kept: list[int] = []
        laws: list[Row] = []
        contexts: dict[int, tuple[int, ...]] = {-1: ()}
        node_of: dict[int, int] = {-1: -1}
        for slot, parent in enumerate(parents):
            if parent not in contexts:
                continue
            q = drafter(contexts[parent])
            siblings = {t for t, k in zip(tokens, kept, strict=True) if k == node_of[parent]}
            left = [0 * w if token in siblings else w for token, w in enumerate(q)]
            if not any(left):
                continue
            token = choices.choose(left)
            contexts[slot] = (*contexts[parent], token)
            node_of[slot] = len(tokens)
            tokens.append(token)
            kept.append(node_of[parent])
            laws.append(q)
        return DraftTree(tuple(tokens), tuple(kept), exact_array(laws))

    return draft


def fixed(tree: DraftTree) -> Drafting:
    """Draft the same tree each time."""
    return lambda _: tree


def chain_parents(length: int) -> tuple[int, ...]:
    """Return the parents of a chain."""
    return tuple(range(-1, length - 1))
