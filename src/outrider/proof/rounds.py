"""Single rounds by the thousand: drafts drawn, verified and recovered with a request's own noise.

Noise that drafting and verification share changes the law by a few percent at most. These two
laws, of four tokens, were chosen because such faults show in them soonest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.proof.laws import Text
from outrider.sampling.noise import KeyedNoise, KeyedRandomness, Stream
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.types import DraftTree, Rule
from outrider.verification import Randomness, verify

P = torch.tensor([0.58, 0.31, 0.08, 0.03])
"""The target's law."""
Q = torch.tensor([0.31, 0.01, 0.03, 0.65])
"""The law that drafts are drawn from."""
LAW: dict[Text, float] = {(token,): mass for token, mass in enumerate(P.tolist())}

_POSITION = 10

MakeRandomness = Callable[[KeyedNoise, int], Randomness]


def draw_rounds(
    rule: Rule, seeds: Iterable[int], make_randomness: MakeRandomness = KeyedRandomness
) -> Counter[Text]:
    """Count the first token of a round with each seed, which verifies one drafted token."""
    rows, logits = _Everywhere(P), Q.log()
    counts: Counter[Text] = Counter()
    for seed in seeds:
        noise = KeyedNoise(seed)
        sampler = KeyedDraftSampler(1.0, noise, rule)
        drawn = sampler.candidates(logits[None], [_POSITION], 1)
        tree = DraftTree.chain(drawn.tokens[0], drawn.q)
        found = verify(rule, rows, tree, make_randomness(noise, _POSITION))
        counts[tree.tokens[0] if found.path else found.next_token,] += 1
    return counts


@dataclass(frozen=True, slots=True, eq=False)
class _Everywhere:
    """A target that says the same at every row."""

    p: Tensor

    def probs(self, row: int) -> Tensor:
        return self.p

    def token(self, row: int) -> int:
        raise NotImplementedError("the rules that reject draw by their own randomness")


class SharingRandomness:
    """A fault that real engines had: the recovered token is drawn with the draft's own noise."""

    def __init__(self, noise: KeyedNoise, position: int) -> None:
        self._noise = noise
        self._position = position
        self._sound = KeyedRandomness(noise, position)

    def accept(self, key: int, probability: float) -> bool:
        """Return True with the given probability."""
        return self._sound.accept(key, probability)

    def draw(self, key: int, weights: Tensor) -> int:
        """Return an index drawn in proportion to weights [V], but not independently."""
        race = self._noise.race(
            Stream.DRAFT, (self._position,), len(weights), weights.device, index=1
        )
        return int((weights / race[0]).argmax())
