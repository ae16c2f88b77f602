"""The token ids a drafter with a reduced vocabulary may draft: those the target writes most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from outrider.errors import OptionError
from outrider.training.base import Sample


@dataclass(frozen=True, slots=True, eq=False)
class DraftVocabulary:
    """The maps between D drafted ids and the V ids of the target, as EAGLE-3 heads keep them."""

    d2t: Tensor
    """[D] int64: how far above its draft id each target id lies; the target's is i + d2t[i]."""
    t2d: Tensor
    """[V] bool: the target's ids that can be drafted."""

    @property
    def ids(self) -> Tensor:
        """The target's ids that can be drafted, in order [D]."""
        return self.t2d.nonzero().flatten()

    @classmethod
    def whole(cls, vocab_size: int) -> DraftVocabulary:
        """Return the maps of a drafter that drafts every id."""
        return cls(
            torch.zeros(vocab_size, dtype=torch.long),
            torch.ones(vocab_size, dtype=torch.bool),
        )


def draft_vocabulary(
    samples: Iterable[Sample], size: int, vocab_size: int, always: Sequence[int] = ()
) -> DraftVocabulary:
    """Choose the `size` ids that samples teach most often, and those of `always` before all others.

    Prompts do not count. Of ids seen equally often the lowest comes first, so that where fewer
    were seen than are wanted, the lowest unseen ones fill up. Raises OptionError for sizes that do
    not fit, ids outside the vocabulary, and samples that teach nothing.
    """
    counts = _counts(samples, vocab_size)
    wanted = set(always)
    if not wanted <= set(range(vocab_size)):
        outside = sorted(wanted - set(range(vocab_size)))
        raise OptionError(f"always holds id {outside[0]}: expected 0 to {vocab_size - 1}")
    if not max(1, len(wanted)) <= size <= vocab_size:
        least = max(1, len(wanted))
        raise OptionError(f"the draft vocabulary has {size} ids: expected {least} to {vocab_size}")
    ranks = counts.clone()
    ranks[sorted(wanted)] = int(counts.max()) + 1
    chosen = torch.sort(ranks, descending=True, stable=True).indices[:size].sort().values
    t2d = torch.zeros(vocab_size, dtype=torch.bool)
    t2d[chosen] = True
    return DraftVocabulary(chosen - torch.arange(size), t2d)


def coverage(samples: Iterable[Sample], ids: Tensor, vocab_size: int) -> float:
    """Return the share of what samples teach that is among `ids` [D]: no drafter of them has more.

    Raises OptionError for samples that teach nothing.
    """
    counts = _counts(samples, vocab_size)
    return float(counts[ids.cpu()].sum() / counts.sum())


def _counts(samples: Iterable[Sample], vocab_size: int) -> Tensor:
    """Return how often each id is taught [V]."""
    counts = torch.zeros(vocab_size, dtype=torch.long)
    for part in _parts(samples):
        ids = torch.tensor(part)
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= vocab_size:
            wrong = low if low < 0 else high
            raise OptionError(f"the samples hold id {wrong}: expected 0 to {vocab_size - 1}")
        counts += torch.bincount(ids, minlength=vocab_size)
    if not int(counts.sum()):
        raise OptionError("the samples hold no tokens to learn: no draft vocabulary comes of them")
    return counts


def _parts(samples: Iterable[Sample], size: int = 1000) -> Iterable[list[int]]:
    """Yield the ids taught, those of many samples together, none of the parts empty."""
    taught = [sample.ids[sample.prompt_tokens :] for sample in samples]
    for start in range(0, len(taught), size):
        if part := list(chain.from_iterable(taught[start : start + size])):
            yield part
