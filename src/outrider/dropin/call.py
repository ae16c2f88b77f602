"""One call of `generate`, as it comes to a callable that decodes in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria

from outrider.dropin.processing import RowProcessing
from outrider.dropin.refusals import require_arguments, require_options, require_stateless
from outrider.errors import OptionError, PromptError
from outrider.sampling.custom import Complete
from outrider.sampling.params import SamplingParams
from outrider.targets.capabilities import require_supported, rollback_class


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """What `generate` wants of its decoding loop: B rows of L tokens to go on from."""

    input_ids: Tensor
    """[B, L], padded on the left, each prompt `num_return_sequences` times."""
    prompts: tuple[tuple[int, ...], ...]
    """The rows without what the attention mask hides."""
    processors: Sequence[Any]
    criteria: Any
    """A StoppingCriteriaList: called with the ids [B, L + n] and the scores so far."""
    config: Any
    """The GenerationConfig that holds for this call."""
    is_double: bool
    """Whether the model computes in float64, which `generate` rounds to float32."""

    @classmethod
    def of(
        cls,
        model: Any,
        input_ids: Tensor,
        processors: Sequence[Any],
        criteria: Any,
        config: Any,
        arguments: Mapping[str, Any],
    ) -> Call:
        """Read a call; raises OptionError for what cannot be honoured, or PromptError.

        A model that cannot be driven is an UnsupportedModelError.
        """
        if model.config.is_encoder_decoder:
            raise OptionError("generate: custom_generate is for decoder-only models")
        require_supported(model.config, name=type(model).__name__, model_class=type(model))
        require_options(config)
        require_arguments(arguments)
        require_stateless(processors)
        has_windows = rollback_class(model.config).layer_type == "sliding_attention"
        seen = _seen(input_ids, arguments.get("attention_mask"), has_windows=has_windows)
        _require_positions(arguments.get("position_ids"), seen)
        prompts = tuple(
            tuple(ids[mask].tolist()) for ids, mask in zip(input_ids, seen, strict=True)
        )
        is_double = model.dtype == torch.float64
        call = cls(input_ids, prompts, processors, criteria, config, is_double)
        if call.pads_rows and config._pad_token_tensor is None:
            raise OptionError("generate: pad_token_id is None: rows that end first are padded")
        return call

    @property
    def returns_output(self) -> bool:
        """Whether an output object is wanted rather than the ids alone."""
        return bool(self.config.return_dict_in_generate)

    @property
    def keeps_scores(self) -> bool:
        """Whether the output has processed scores."""
        return self.returns_output and bool(self.config.output_scores)

    @property
    def keeps_logits(self) -> bool:
        """Whether the output has raw logits."""
        return self.returns_output and bool(self.config.output_logits)

    @property
    def pads_rows(self) -> bool:
        """Whether rows that have ended are padded, rather than written on until all have."""
        return any(hasattr(one, "eos_token_id") for one in self.criteria)

    @property
    def pad_token_id(self) -> int:
        """What rows that have ended are padded with."""
        return int(self.config._pad_token_tensor)

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """The ids that end a row, as far as Transformers' own criteria say so."""
        exact = [one for one in self.criteria if type(one) is EosTokenCriteria]
        return tuple(token for one in exact for token in one.eos_token_id.tolist())

    @property
    def max_new_tokens(self) -> int:
        """How many tokens a row can get; the criteria are asked only after the first."""
        limits = [one.max_length for one in self.criteria if type(one) is MaxLengthCriteria]
        if not limits:
            raise OptionError("generate: there is no max_length or max_new_tokens")
        return max(1, min(limits) - self.input_ids.shape[1])

    def processing(self, row: int) -> RowProcessing:
        """Return the processors for one row."""
        return RowProcessing(
            self.processors,
            row,
            len(self.prompts),
            len(self.prompts) // self.config.num_return_sequences,
            self.input_ids[row],
            num_seen=len(self.prompts[row]),
            keep=self.keeps_scores or self.keeps_logits,
        )

    def params(self, processing: RowProcessing) -> SamplingParams:
        """Return the options a row is decoded with: its processing, where that does anything.

        Temperature and tail are what drafters draw with; to the target they are processors.
        """
        common: dict[str, Any] = {"max_new_tokens": self.max_new_tokens}
        if self.processors or self.keeps_scores or self.keeps_logits or self.is_double:
            common["logits_processors"] = (Complete(processing),)
        if not self.config.do_sample:
            return SamplingParams(**common)
        named = {name: getattr(self.config, name) for name in ("top_k", "top_p", "min_p")}
        tail = {name: value for name, value in named.items() if value is not None}
        return SamplingParams(temperature=self.config.temperature or 1.0, **tail, **common)


def _seen(input_ids: Tensor, mask: Tensor | None, *, has_windows: bool) -> Tensor:
    """Return which ids the model sees [B, L]; raises for a mask that changes more than that.

    Positions count visible tokens only, so a text with hidden ones reads as the text without them.
    """
    if mask is None:
        return torch.ones_like(input_ids, dtype=torch.bool)
    if mask.shape != input_ids.shape:
        wanted, found = tuple(input_ids.shape), tuple(mask.shape)
        raise OptionError(f"generate: attention_mask has the shape {found}: expected {wanted}")
    seen = mask.bool()
    for row, flags in enumerate(seen.tolist()):
        if not any(flags):
            raise PromptError(f"row {row} is empty: its attention_mask is 0 throughout")
        # Behind a hidden last token `generate` decodes from that token, which sees nothing. And a
        # window counts the hidden tokens in it.
        if not flags[-1] or (has_windows and not all(flags[flags.index(True) :])):
            raise OptionError(
                f"generate: attention_mask of row {row} has zeros behind its first one: prompts "
                "are to be padded on the left (padding_side='left')"
            )
    return seen.to(input_ids.device)


def _require_positions(positions: Tensor | None, seen: Tensor) -> None:
    """Raise OptionError for position_ids other than those that visible ids [B, L] count to."""
    if positions is None:
        return
    expected = seen.long().cumsum(-1) - 1
    found = positions.to(seen.device)
    found = found if len(found) == len(seen) else found[:1]
    if found.shape[1:] != seen.shape[1:] or bool(((found != expected) & seen).any()):
        raise OptionError(
            "generate: position_ids do not count a prompt's tokens from 0: leave them"
        )
