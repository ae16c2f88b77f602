"""Tiny models and drafters to enumerate: vocabularies of two to four tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

from outrider.proof.enumeration import Choices, Drafting, Model, Row, Text, exact_array
from outrider.types import DraftTree


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


def constant(distribution: Row) -> Model:
    """Return the model that says the same in every context."""
    return lambda _: distribution


def random_model(seed: int, vocab_size: int, zeros: int = 1) -> Model:
    """Return a model with another distribution in each context, some entries being zero."""

    @cache
    def distribution(context: Text) -> Row:
        generator = random.Random(repr((seed, context)))
        weights = [generator.choice([0] * zeros + [1, 2, 3, 5]) for _ in range(vocab_size)]
        return row(*weights) if any(weights) else row(*[1] * vocab_size)

    return distribution


def one_hot_model(seed: int, vocab_size: int) -> Model:
    """Return a model that is certain of its next token, another one in each context."""

    @cache
    def distribution(context: Text) -> Row:
        token = random.Random(repr((seed, context))).randrange(vocab_size)
        return row(*(int(token == index) for index in range(vocab_size)))

    return distribution


def sampled(drafter: Model, parents: Sequence[int]) -> Drafting:
    """Draft a tree of this shape, siblings without replacement as long as q has any to give."""

    def draft(choices: Choices) -> DraftTree:
        tokens: list[int] = []
        kept: list[int] = []
        laws: list[Row] = []
        contexts: dict[int, Text] = {-1: ()}
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
