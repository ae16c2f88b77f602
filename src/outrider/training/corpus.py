"""The samples of a training run: what is learnt, what is held out, and in which batches.

All of it is a function of the samples, whatever their order, and of the options: a run that was
killed and resumed sees the batches it would have seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from random import Random

from outrider.errors import OptionError
from outrider.training.base import Batch, Sample, batch_of
from outrider.training.prompts import prompt_key

MIN_COUNTED = 4
"""Tokens that must count: a lesson looks a few tokens ahead, and learns nothing from fewer."""

_POOL = 1024  # samples sorted by length together: few enough that epochs differ


class Corpus:
    """Samples split into those learnt and those held out, given out as batches of similar lengths.

    A sample longer than `max_tokens` is cut. Its answer keeps at least half of them if it has as
    many; the prompt keeps what remains, from its end, which says most about the answer; then the
    answer ends early. A sample with fewer than `MIN_COUNTED` tokens that count is dropped. The
    share `held_out` (one prompt at least, unless it is 0) is chosen by the digest of the prompt, of
    the whole for a text without one: a prompt is on one side only, however the samples grow.
    """

    def __init__(
        self,
        samples: Iterable[Sample],
        *,
        max_tokens: int = 2048,
        batch_tokens: int = 8192,
        seed: int = 0,
        held_out: float = 0.02,
        device: str = "cpu",
    ) -> None:
        """`batch_tokens` bounds a batch with its padding; raises OptionError if none is learnt."""
        _check(max_tokens, batch_tokens, held_out)
        given = list(samples)
        keyed = sorted(
            ((_key(sample), cut(sample, max_tokens)) for sample in given),
            key=lambda item: (item[0], item[1].ids),
        )
        kept = [(key, sample) for key, sample in keyed if _counted(sample) >= MIN_COUNTED]
        self.num_cut = sum(len(sample.ids) > max_tokens for sample in given)
        self.num_dropped = len(given) - len(kept)
        held = _held_out_keys({key for key, _ in kept}, held_out)
        self.learnt = tuple(sample for key, sample in kept if key not in held)
        self.held_out = tuple(sample for key, sample in kept if key in held)
        if not self.learnt:
            raise OptionError(
                f"the corpus is empty: of {len(given)} samples {self.num_dropped} have fewer than "
                f"{MIN_COUNTED} tokens to learn, and {len(self.held_out)} are held out"
            )
        self._batch_tokens = batch_tokens
        self._seed = seed
        self._device = device

    @property
    def num_tokens(self) -> int:
        """Tokens that are learnt in an epoch."""
        return sum(_counted(sample) for sample in self.learnt)

    @property
    def digest(self) -> str:
        """What tells this corpus from others: samples, split and batches."""
        digest = hashlib.sha256(f"{self._batch_tokens}:{self._seed}".encode())
        for samples in (self.learnt, self.held_out):
            digest.update(f"/{len(samples)}".encode())
            for sample in samples:
                digest.update(f"{sample.prompt_tokens}:{prompt_key(sample.ids)}".encode())
        return digest.hexdigest()[:16]

    def num_batches(self, epoch: int) -> int:
        """Return how many batches an epoch has; that differs a little between epochs."""
        return len(self._plan(epoch))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Give out the batches of an epoch in its own order, from batch `start` on."""
        plan = self._plan(epoch)
        if not 0 <= start <= len(plan):
            raise OptionError(f"start is {start}: epoch {epoch} has {len(plan)} batches")
        for places in plan[start:]:
            yield batch_of([self.learnt[place] for place in places], self._device)

    def held_out_batches(self) -> Iterator[Batch]:
        """Give out what is held out, always in the same batches."""
        places = range(len(self.held_out))
        for group in _groups(places, self.held_out, self._batch_tokens):
            yield batch_of([self.held_out[place] for place in group], self._device)

    def _plan(self, epoch: int) -> list[list[int]]:
        """Return the places of the samples of each batch."""
        random = Random(f"{self._seed}:{epoch}")
        order = _shuffled(range(len(self.learnt)), random)
        plan: list[list[int]] = []
        for start in range(0, len(order), _POOL):
            plan += _groups(order[start : start + _POOL], self.learnt, self._batch_tokens)
        return [plan[place] for place in _shuffled(range(len(plan)), random)]


def cut(sample: Sample, max_tokens: int) -> Sample:
    """Return a sample of at most `max_tokens`: the end of its prompt, the start of its answer."""
    if len(sample.ids) <= max_tokens:
        return sample
    prompt, answer = sample.ids[: sample.prompt_tokens], sample.ids[sample.prompt_tokens :]
    room = max(max_tokens - len(prompt), max_tokens // 2)
    answer = answer[:room]
    prompt = prompt[max(0, len(prompt) + len(answer) - max_tokens) :]
    return Sample((*prompt, *answer), len(prompt))


def _check(max_tokens: int, batch_tokens: int, held_out: float) -> None:
    if max_tokens < 2 * MIN_COUNTED:
        raise OptionError(f"max_tokens is {max_tokens}, must be at least {2 * MIN_COUNTED}")
    if batch_tokens < max_tokens:
        raise OptionError(
            f"batch_tokens is {batch_tokens}, must be at least max_tokens ({max_tokens})"
        )
    if not 0 <= held_out < 1:
        raise OptionError(f"held_out is {held_out}, must be from 0 to below 1")


def _key(sample: Sample) -> str:
    return prompt_key(sample.ids[: sample.prompt_tokens] or sample.ids)


def _counted(sample: Sample) -> int:
    return len(sample.ids) - sample.prompt_tokens


def _held_out_keys(keys: set[str], share: float) -> set[str]:
    """Return the keys below a share of all digests there are; one at least, if any are wanted."""
    if not share or len(keys) < 2:
        return set()
    bound = f"{int(share * 16**8):08x}"
    return {key for key in keys if key[:8] < bound} or {min(keys)}


def _shuffled(places: range, random: Random) -> list[int]:
    # Random promises the same numbers in every version of Python, but not the same shuffle.
    ranks = [random.random() for _ in places]
    return sorted(places, key=ranks.__getitem__)


def _groups(places: Sequence[int], samples: Sequence[Sample], batch_tokens: int) -> list[list[int]]:
    """Put neighbours in length together, as many as fit when all are padded to the longest."""
    groups: list[list[int]] = []
    for place in sorted(places, key=lambda place: len(samples[place].ids)):
        width = len(samples[place].ids)
        if not groups or (len(groups[-1]) + 1) * width > batch_tokens:
            groups.append([])
        groups[-1].append(place)
    return groups
