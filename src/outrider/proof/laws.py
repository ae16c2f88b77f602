"""Whether texts that were sampled have the law they should have: exact laws, and chi-square."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.errors import OptionError

Text = tuple[int, ...]

_FEWEST = 10.0
"""Texts expected less often than this are counted together: chi-square needs so many."""
_TRIALS = 1000


@dataclass(frozen=True, slots=True)
class ChiSquare:
    """How far counts lie from a law."""

    value: float
    freedom: int
    p_value: float
    """How often a sound sampler is so far off, or farther."""

    def __str__(self) -> str:
        return (
            f"chi-square {self.value:.1f}, {self.freedom} degrees of freedom, p {self.p_value:.2g}"
        )


def require_statistics() -> None:
    """Raise OptionError if the library that knows the chi-square distribution is missing."""
    try:
        import scipy.stats  # noqa: F401
    except ImportError as error:
        raise OptionError(
            "the distribution part needs SciPy: pip install 'outrider[prove]'"
        ) from error


def text_law(
    probs: Callable[[Text], Tensor], length: int, is_final: Callable[[int], bool]
) -> dict[Text, float]:
    """Return the probability of every text of `length` tokens, or fewer where one is final.

    `probs` gives the distribution [V] after a text; tokens without probability start none.
    """
    law: dict[Text, float] = {}
    open_texts: dict[Text, float] = {(): 1.0}
    while open_texts:
        longer: dict[Text, float] = {}
        for text, probability in open_texts.items():
            row = probs(text).double()
            for token in row.nonzero().squeeze(-1).tolist():
                new, mass = (*text, token), probability * float(row[token])
                is_whole = len(new) == length or is_final(token)
                (law if is_whole else longer)[new] = mass
        open_texts = longer
    return law


def chi_square(samples: Sequence[tuple[Mapping[Text, int], Mapping[Text, float]]]) -> ChiSquare:
    """Test counts of texts against their laws, several (counts, law) pairs as one.

    Rare texts of a pair are counted together. A text that its law rules out makes the p-value 0.
    """
    from scipy.stats import chi2

    value, freedom = 0.0, 0
    for counts, law in samples:
        if any(law.get(text, 0.0) <= 0 for text in counts):
            return ChiSquare(float("inf"), max(1, freedom), 0.0)
        cells = _cells(counts, law)
        value += sum((seen - wanted) ** 2 / wanted for seen, wanted in cells)
        freedom += len(cells) - 1
    p_value = float(chi2.sf(value, freedom)) if freedom else 1.0
    return ChiSquare(value, freedom, p_value)


def _cells(counts: Mapping[Text, int], law: Mapping[Text, float]) -> list[tuple[int, float]]:
    """Return how often the texts of each cell were seen, and expected.

    Rare texts share a cell with those that begin like them, as far as that goes.
    """
    draws = sum(counts.values())

    def weight(texts: Sequence[Text]) -> float:
        return draws * sum(law[text] for text in texts)

    def split(texts: Sequence[Text], length: int) -> tuple[list[list[Text]], list[Text]]:
        """Return the cells of texts that share their first tokens, and the texts left over."""
        if len(texts) == 1:
            return [], list(texts)
        by_next: dict[Text, list[Text]] = {}
        for text in texts:
            by_next.setdefault(text[length : length + 1], []).append(text)
        cells: list[list[Text]] = []
        rest: list[Text] = []
        for some in by_next.values():
            found, left = split(some, length + 1)
            cells += found
            if weight(left) >= _FEWEST:
                cells.append(left)
            else:
                rest += left
        return cells, rest

    cells, rest = split(list(law), 0)
    if weight(rest) >= _FEWEST or not cells:
        cells.append(rest)
    else:  # too few even together
        min(cells, key=weight).extend(rest)
    return [(sum(counts.get(text, 0) for text in cell), weight(cell)) for cell in cells if cell]


def total_variation(samples: Sequence[tuple[Mapping[Text, int], Mapping[Text, float]]]) -> float:
    """Return half the sum of what shares and probabilities differ by; of several pairs the mean."""
    return sum(_distance(counts, law) for counts, law in samples) / len(samples)


def _distance(counts: Mapping[Text, int], law: Mapping[Text, float]) -> float:
    draws = sum(counts.values())
    texts = {*counts, *law}
    return sum(abs(counts.get(text, 0) / draws - law.get(text, 0.0)) for text in texts) / 2


def variation_floor(laws: Sequence[Mapping[Text, float]], draws: int) -> float:
    """Return the farthest `total_variation` of so many draws from each of the laws themselves.

    Out of a thousand times: a sound sampler comes to lie farther once in so many, or less.
    """
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(_TRIALS, dtype=torch.float64)
    for law in laws:
        chances = torch.tensor(list(law.values()), dtype=torch.float64)
        drawn = torch.multinomial(
            chances.expand(_TRIALS, -1), draws, replacement=True, generator=generator
        )
        counts = torch.zeros(_TRIALS, len(chances), dtype=torch.float64)
        counts.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))
        total += (counts / draws - chances / chances.sum()).abs().sum(1) / 2
    return float(total.max()) / len(laws)


def first_tokens(law: Mapping[Text, float]) -> dict[Text, float]:
    """Return the law of the first tokens of texts, or their counts."""
    found: dict[Text, float] = {}
    for text, share in law.items():
        found[text[:1]] = found.get(text[:1], 0) + share
    return found


def binomial_p_value(hits: int, draws: int, probability: float) -> float:
    """Return how often a count as unlikely as `hits` out of `draws` happens by chance."""
    from scipy.stats import binomtest

    return float(binomtest(hits, draws, min(1.0, max(0.0, probability))).pvalue)
