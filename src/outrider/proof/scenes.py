"""Contexts whose continuations have a law that is known exactly, and answers drawn after them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from outrider.decoder import Decoder
from outrider.proof.drafters import ContraryDrafter
from outrider.proof.laws import Text, text_law
from outrider.proof.memory import Context, RememberingTarget
from outrider.sampling.noise import KeyedNoise
from outrider.sampling.params import MIN_TEMPERATURE, SamplingParams
from outrider.sampling.pipeline import LogitsPipeline
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.targets.base import Target

SUPPORT = 4
"""Tokens that may come next."""
BATCH = 64
"""Answers drawn at once."""

_LENGTH = 3  # tokens of an answer that are counted, as one outcome
_SPREAD = 1.5  # between the scores of the likeliest and the least likely token of the first row
_ROOM = 8  # tokens a request could have: drafts are not cut short by the end of it
_CONTEXT = 12  # last tokens of a prompt that are read


class _Short:
    """Ends an answer after so many tokens."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __call__(self, ids: Tensor, scores: object) -> bool:
        return ids.shape[1] >= self._length


class Scene:
    """A context, the target's exact law of the texts after it, and the options of every draw."""

    def __init__(self, target: Target, prompt_ids: Sequence[int], layers: Sequence[int]) -> None:
        """The end of a prompt is a context as good as any, and sooner read."""
        self.prompt_ids: Context = tuple(prompt_ids[-_CONTEXT:])
        self.target = RememberingTarget(target, layers)

    @cached_property
    def params(self) -> SamplingParams:
        """Few tokens, at a temperature that makes all of them likely; one of them ends the text."""
        highest = self.target.logits(self.prompt_ids).topk(SUPPORT)
        spread = float(highest.values[0] - highest.values[-1])
        return SamplingParams(
            temperature=max(MIN_TEMPERATURE, spread / _SPREAD),
            top_k=SUPPORT,
            max_new_tokens=_ROOM,
            ignore_eos=True,
            stop_token_ids=(int(highest.indices[1]),),
            stopping_criteria=(_Short(len(self.prompt_ids) + _LENGTH),),
        )

    @cached_property
    def law(self) -> dict[Text, float]:
        """The probability of every text."""
        return text_law(self.probs, _LENGTH, self.params.stop_token_ids.__contains__)

    def probs(self, text: Text) -> Tensor:
        """Return the target's distribution [V] after a text, with all options."""
        target = self.target
        pipeline = LogitsPipeline(
            self.params, self.prompt_ids, (), target.vocab_size, target.device
        )
        logits = target.logits((*self.prompt_ids, *text)).double()[None]
        return pipeline.probs(pipeline.scores(logits, [text]))[0].cpu()

    def accepted_share(self, drafter: ContraryDrafter) -> float:
        """Return how often the first draft of a chain is accepted: the sum of min(p, q)."""
        sampler = KeyedDraftSampler(
            self.params.temperature,
            KeyedNoise(0),
            "rejection",
            top_k=self.params.top_k,
            vocab_size=self.target.vocab_size,
        )
        logits = drafter.draft_logits(self.prompt_ids)
        q = sampler.candidates(logits[None], [len(self.prompt_ids)], 1).q
        assert q is not None
        return float(self.probs(()).minimum(q[0]).sum())

    def draw(self, decoder: Decoder, seeds: Sequence[int]) -> Sample:
        """Draw an answer with each seed."""
        sample = Sample(Counter())
        likeliest = max(self.law, key=self.law.__getitem__)
        for start in range(0, len(seeds), BATCH):
            some = seeds[start : start + BATCH]
            results = decoder.generate_batch(
                [self.prompt_ids] * len(some),
                params=[replace(self.params, seed=seed) for seed in some],
                predictions=[likeliest] * len(some),  # for drafters that need one
            )
            for result in results:
                stats = result.stats
                sample.counts[result.token_ids] += 1
                sample.firsts += result.tokens[0].source == "accepted"
                sample.drafted += stats.proposed
                sample.accepted += stats.accepted
                if stats.drafter_error not in (None, *sample.dropped):
                    sample.dropped += (str(stats.drafter_error),)
        return sample


@dataclass(slots=True)
class Sample:
    """Answers to one scene."""

    counts: Counter[Text]
    firsts: int = 0
    """Answers whose first token was a draft that was accepted."""
    drafted: int = 0
    accepted: int = 0
    dropped: tuple[str, ...] = ()
