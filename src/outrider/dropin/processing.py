"""What `generate`'s logits processors make of one row of a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from transformers.generation import logits_process as hf

Processor: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# They treat every row of a batch alike, so a row may be given to them alone.
_EACH_ROW_ALIKE = frozenset(
    {
        hf.MinLengthLogitsProcessor,
        hf.MinNewTokensLengthLogitsProcessor,
        hf.TemperatureLogitsWarper,
        hf.TopPLogitsWarper,
        hf.TopKLogitsWarper,
        hf.TopHLogitsWarper,
        hf.MinPLogitsWarper,
        hf.TypicalLogitsWarper,
        hf.EpsilonLogitsWarper,
        hf.EtaLogitsWarper,
        hf.NoRepeatNGramLogitsProcessor,
        hf.SequenceBiasLogitsProcessor,
        hf.NoBadWordsLogitsProcessor,
        hf.ForcedBOSTokenLogitsProcessor,
        hf.ForcedEOSTokenLogitsProcessor,
        hf.InfNanRemoveLogitsProcessor,
        hf.ExponentialDecayLengthPenalty,
        hf.LogitNormalization,
        hf.SuppressTokensAtBeginLogitsProcessor,
        hf.SuppressTokensLogitsProcessor,
        hf.WatermarkLogitsProcessor,
    }
)


@dataclass(frozen=True, slots=True)
class Record:
    """What `generate` would have had at one step of a row: [1, V] each, in float32."""

    logits: Tensor
    scores: Tensor


class RowProcessing:
    """The processors of a batch, for one of its rows; a function of the row's prefix and logits.

    As in `generate`, logits become float32 first, and the prefix holds what the mask hides, too.
    """

    def __init__(
        self,
        processors: Sequence[Any],
        row: int,
        rows: int,
        prompts: int,
        prompt: Tensor,
        *,
        num_seen: int,
        keep: bool,
    ) -> None:
        """For row `row` of the `rows` that `prompts` prompts were expanded to.

        `prompt` is the whole row [L], of which the model sees `num_seen` ids; `keep` says that
        records are kept.
        """
        self._processors = [for_row(one, row, rows, prompts) for one in processors]
        self._prompt = prompt.unsqueeze(0)
        self._num_seen = num_seen
        self._keep = keep
        self._records: dict[int, Record] = {}

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        """Return scores [1, V] for logits [1, V] after ids [1, n], hidden ones left out of them."""
        record = self.process(ids, logits)
        if self._keep:
            # The path that is accepted is the last to ask for a row at its depth.
            self._records[ids.shape[1] - self._num_seen] = record
        return record.scores.to(logits.device)

    def process(self, ids: Tensor, logits: Tensor) -> Record:
        """Return what a step of `generate` has at these ids."""
        device = self._prompt.device
        ids = torch.cat((self._prompt, ids[:, self._num_seen :].to(device)), dim=1)
        # Processors that write into what they are given change `logits` here as they do there.
        logits = logits.to(device=device, dtype=torch.float32, copy=True)
        scores = logits
        for processor in self._processors:
            scores = processor(ids, scores)
        return Record(logits, scores)

    def take(self, step: int) -> Record:
        """Return the record of a new token, counted from 0, and forget it."""
        return self._records.pop(step)


def for_row(processor: Any, row: int, rows: int, prompts: int) -> Processor:
    """Return what a processor of a batch of `rows` is to one row by itself.

    A processor not known here is shown the row in every place of the batch, and asked for its own.
    """
    found: Any = processor
    if rows == 1 or type(processor) in _EACH_ROW_ALIKE:
        return found  # type: ignore[no-any-return]
    prompt = row // (rows // prompts)
    if type(processor) is hf.PrefixConstrainedLogitsProcessor:
        allowed = processor._prefix_allowed_tokens_fn
        return hf.PrefixConstrainedLogitsProcessor(lambda _, ids: allowed(prompt, ids), 1)
    if type(processor) is hf.RepetitionPenaltyLogitsProcessor:
        ignored = processor.prompt_ignore_length
        return _with(found, prompt_ignore_length=_one(ignored, row))
    if type(processor) is hf.EncoderRepetitionPenaltyLogitsProcessor:
        return _with(found, encoder_input_ids=_one(processor.encoder_input_ids, prompt))
    if type(processor) is hf.EncoderNoRepeatNGramLogitsProcessor:
        return _with(found, batch_size=1, generated_ngrams=[processor.generated_ngrams[prompt]])
    return partial(_in_its_place, found, row, rows)


def _in_its_place(processor: Processor, row: int, rows: int, ids: Tensor, scores: Tensor) -> Tensor:
    processed = processor(ids.expand(rows, -1), scores.repeat(rows, 1))
    return processed[row : row + 1]


def _with(processor: Any, **fields: Any) -> Processor:
    own: Any = copy.copy(processor)
    for name, value in fields.items():
        setattr(own, name, value)
    return own  # type: ignore[no-any-return]


def _one(values: Any, index: int) -> Any:
    return values[index : index + 1] if isinstance(values, Tensor) else values
