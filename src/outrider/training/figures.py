"""What batches came to: loss and acceptance as plain numbers, and their mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.training.base import Batch, Marks


@dataclass(frozen=True, slots=True)
class Figures:
    """What batches came to, as plain numbers: `Marks` averaged over the tokens that count."""

    loss: float
    alphas: tuple[float, ...]
    matches: tuple[float, ...]

    @property
    def tau(self) -> float:
        """The acceptance length of a chain of drafts that is as good at each depth."""
        return acceptance_length(self.alphas)

    def row(self, prefix: str = "") -> dict[str, float | None]:
        """Return the numbers by the names they have in a table."""
        named = {"loss": self.loss, "tau": self.tau}
        named |= {f"alpha_{depth}": one for depth, one in enumerate(self.alphas, 1)}
        named |= {f"match_{depth}": one for depth, one in enumerate(self.matches, 1)}
        return {prefix + name: value for name, value in named.items()}


def figures_of(marks: Marks) -> Figures:
    """Return the numbers of one batch."""
    return Figures(float(marks.loss.detach()), marks.alphas, marks.matches)


def shares_of(batches: Sequence[Batch]) -> list[float]:
    """Return what each batch counts for among several: its share of the tokens learnt."""
    counts = [batch.num_tokens for batch in batches]
    total = max(1, sum(counts))
    return [count / total for count in counts]


def mean(figures: Sequence[Figures], shares: Sequence[float]) -> Figures:
    """Return the mean of the numbers of several batches, by their shares."""

    def weighted(values: Sequence[float]) -> float:
        return sum(value * share for value, share in zip(values, shares, strict=True))

    return Figures(
        weighted([one.loss for one in figures]),
        tuple(weighted(depth) for depth in zip(*(one.alphas for one in figures), strict=True)),
        tuple(weighted(depth) for depth in zip(*(one.matches for one in figures), strict=True)),
    )


def acceptance_length(alphas: Sequence[float]) -> float:
    """Return tau of a chain whose token at depth d is accepted with alphas[d], if one gets there.

    1 + a1 + a1 a2 + ...: the token that every pass gives, and those accepted before it (Leviathan
    et al. 2211.17192, equation 1, with a rate for each depth).
    """
    reached, total = 1.0, 1.0
    for alpha in alphas:
        reached *= alpha
        total += reached
    return total
