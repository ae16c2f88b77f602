"""Arithmetic on distributions [V] that the rules which reject have in common.

It keeps to operations that torch tensors share with numpy arrays of fractions, so that the tests
enumerate these very rules in exact rationals. No function changes its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from outrider.errors import NumericsError, VocabularyMismatchError
from outrider.types import DraftTree

if TYPE_CHECKING:
    from torch import Tensor


def at(law: Tensor, token: int) -> float:
    """Return one entry as a plain number."""
    entry: float = law[token : token + 1].tolist()[0]
    return entry


def total(weights: Tensor) -> float:
    """Return the sum of all entries as a plain number."""
    # Summing a column leaves an array of one entry, which knows `tolist`; a bare sum may not.
    mass: float = weights[:, None].sum(0).tolist()[0]
    return mass


def draft_law(tree: DraftTree, siblings: Sequence[int], p: Tensor) -> Tensor:
    """Return the distribution that the last of `siblings` was drawn from, after the others.

    It is their common `q` without the tokens drawn before, made to sum to 1 in the precision of
    the target's `p` at the parent: a `q` sampled from in half precision rarely does by itself.

    Raises:
        VocabularyMismatchError: `q`, or the drafted token, does not fit the target's vocabulary.
        NumericsError: `q` gives the drafted token no probability, so it was not drawn from it.
    """
    assert tree.q is not None
    *earlier, node = siblings
    q, token = tree.q[node], tree.tokens[node]
    if q.shape != p.shape:
        raise VocabularyMismatchError(
            f"q of node {node} has {len(q)} entries; the target's vocabulary has {len(p)}"
        )
    if not 0 <= token < len(p):
        raise VocabularyMismatchError(
            f"node {node} carries token {token}; the target's vocabulary is 0 to {len(p) - 1}"
        )
    law = q + 0 * p
    for sibling in earlier:
        law[tree.tokens[sibling]] = 0
    if not at(law, token) > 0:
        raise NumericsError(
            f"node {node} carries token {token}, to which its q gives probability {at(law, token)}"
            " after its earlier siblings; a sampled draft needs more than 0"
        )
    return law / total(law)


def residual(p: Tensor, q: Tensor, scale: float = 1) -> tuple[Tensor, float]:
    """Return what `scale * p` has in excess of `q`, made to sum to 1, and the mass it had.

    Where there is no excess at all, p and q differ by rounding only, and p itself is returned.
    """
    excess = (scale * p - q).clip(min=0)
    mass = total(excess)
    return (excess / mass, mass) if mass > 0 else (p, mass)
