"""Exact enumeration of one round in rationals: every draft, every decision, with its probability.

Rows are numpy object arrays of fractions, or arrays and tensors of floats where a check wants the
rules in floating point; the rules cannot tell the difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch

from outrider.types import DraftTree, Verification
from outrider.verification import Randomness, TargetRows

Outcome = TypeVar("Outcome")
Row: TypeAlias = tuple[Fraction, ...]
"""A distribution over a tiny vocabulary."""
Text: TypeAlias = tuple[int, ...]
Law: TypeAlias = dict[Text, Fraction]
Model: TypeAlias = Callable[[Text], Row]
"""Distribution of the next token after the tokens of this round so far."""
VerificationRule: TypeAlias = Callable[[TargetRows, DraftTree, Randomness], Verification]
Drafting: TypeAlias = Callable[["Choices"], DraftTree]
ToArray: TypeAlias = Callable[[Sequence[Any]], Any]


class BrokenContractError(AssertionError):
    """A rule did what no rule may do: asked twice, changed a row, or left the tree."""


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
        if not support or not all(weight >= 0 for weight in weights):
            raise BrokenContractError(f"weights {list(map(str, weights))} are no distribution")
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
        """Branch into yes and no."""
        self._claim(key)
        if not 0 <= probability <= 1:
            raise BrokenContractError(f"decision {key} has probability {probability}")
        return self.choices.choose([probability, 1 - probability]) == 0

    def draw(self, key: int, weights: Any) -> int:
        """Branch into all indices that have weight."""
        self._claim(key)
        return self.choices.choose(weights.tolist())

    def _claim(self, key: int) -> None:
        if key in self.keys:
            raise BrokenContractError(f"decision {key} taken twice")
        self.keys.add(key)


@dataclass
class ModelRows:
    """Target rows of a tree under a model; refuses to answer a row twice."""

    target: Model
    tree: DraftTree
    to_array: ToArray = exact_array
    choices: Choices | None = None
    asked: dict[int, Any] = field(default_factory=dict)

    def prefix(self, row: int) -> Text:
        """Return the drafted tokens that a row stands after."""
        if row == 0:
            return ()
        return (*self.prefix(self.tree.parents[row - 1] + 1), self.tree.tokens[row - 1])

    def probs(self, row: int) -> Any:
        """Return the model's distribution at a row."""
        if row in self.asked:
            raise BrokenContractError(f"row {row} asked for twice")
        self.asked[row] = self.to_array(self.target(self.prefix(row)))
        return self.asked[row]

    def token(self, row: int) -> int:
        """Return the model's own draw at a row, a branch for each token."""
        assert self.choices is not None
        return self.choices.choose(self.probs(row).tolist())

    def require_untouched(self) -> None:
        """Raise BrokenContractError if a rule has changed a distribution it was given."""
        for row, answer in self.asked.items():
            expected = self.to_array(self.target(self.prefix(row)))
            if answer.tolist() != expected.tolist():
                raise BrokenContractError(f"row {row} was modified")


@dataclass(frozen=True)
class Round:
    """Joint law of what a round emits, continued by the target to `length` tokens."""

    law: Law
    accepted: Fraction
    """Expected number of accepted tokens."""


def enumerate_round(
    rule: VerificationRule,
    target: Model,
    drafting: Drafting,
    length: int,
    to_array: ToArray = exact_array,
) -> Round:
    """Work out one round over all drafts and decisions.

    Raises BrokenContractError for a rule that breaks the contract of rules.
    """
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
    rule: VerificationRule, target: Model, tree: DraftTree, to_array: ToArray, choices: Choices
) -> Verification:
    rows = ModelRows(target, tree, to_array, choices)
    verification = rule(rows, tree, EnumeratedRandomness(choices))
    rows.require_untouched()
    parents = [tree.parents[node] for node in verification.path]
    if parents != [-1, *verification.path][: len(parents)]:
        raise BrokenContractError(f"{verification.path} is no path from the root")
    return verification


def first_token(rule: VerificationRule, p: Row, drafting: Drafting) -> Row:
    """Return the law of the first token that a round emits where the target always says p."""
    law = enumerate_round(rule, lambda _: p, drafting, length=1).law
    return tuple(law.get((token,), Fraction(0)) for token in range(len(p)))


def continuations(target: Model, start: Text, length: int) -> Law:
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


def law_difference(
    law: Mapping[Text, Any], other: Mapping[Text, Any], tolerance: float = 0
) -> Text | None:
    """Return the first text to which two laws give other probabilities, None if there is none.

    Texts of no probability may be missing.
    """
    for text in sorted(law.keys() | other.keys()):
        if abs(law.get(text, 0) - other.get(text, 0)) > tolerance:
            return text
    return None
