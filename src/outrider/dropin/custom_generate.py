"""What `model.generate(custom_generate=...)` takes: outrider in place of `generate`'s own loop."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from outrider.assembly import DrafterChoice, check_options, load
from outrider.decoder import Decoder
from outrider.drafters.base import Drafter
from outrider.dropin.call import Call
from outrider.dropin.caller import kept_back
from outrider.dropin.loop import decode
from outrider.dropin.refusals import require_alone
from outrider.dropin.rows import Rows
from outrider.errors import OptionError
from outrider.sampling.params import MAX_SEED, SamplingParams
from outrider.types import Numerics, Rule


def custom_generate(
    *,
    drafter: str | Drafter[Any] | Sequence[Drafter[Any]] = "suffix",
    rule: Rule = "match",
    max_draft: int | Literal["auto"] = "auto",
    max_batch: int = 64,
    numerics: Numerics = "fast",
    compile: bool | None = None,
    profile: bool | str | Path | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    seed: int | None = None,
    trust_remote_code: bool = False,
) -> CustomGenerate:
    """Return what `model.generate(**inputs, custom_generate=...)` takes.

    Options are those of `outrider.load`; at most `max_batch` rows are decoded at a time, and the
    `tokenizer` is for drafters that need one. Row i of a batch samples with `seed + i`; None draws
    seeds from torch's generator, so that `torch.manual_seed` holds for them.

    Keep what is returned for the next call: it knows the models it has met, for as long as they
    are there, and what was learnt of them. Raises OptionError.
    """
    choice = check_options(drafter, rule, max_draft, max_batch, numerics, compile, profile)
    _require_no_prediction(choice)
    wrap = partial(
        load,
        drafter=drafter,
        rule=rule,
        max_draft=max_draft,
        max_batch=max_batch,
        numerics=numerics,
        compile=compile,
        profile=profile,
        tokenizer=tokenizer,
        trust_remote_code=trust_remote_code,
    )
    return CustomGenerate(wrap, SamplingParams(seed=seed).seed)


class CustomGenerate:
    """Decodes in place of the loop of `generate`; called by Transformers, one call at a time."""

    def __init__(self, wrap: Callable[[PreTrainedModel], Decoder], seed: int | None) -> None:
        """`wrap` makes a decoder of a model; see `custom_generate`."""
        self._wrap = wrap
        self._seed = seed
        self._decoders: WeakKeyDictionary[PreTrainedModel, Decoder] = WeakKeyDictionary()
        self._lock = RLock()

    def __call__(
        self,
        model: PreTrainedModel,
        input_ids: Tensor,
        *,
        logits_processor: Sequence[Any],
        stopping_criteria: Any,
        generation_config: GenerationConfig,
        streamer: Any = None,
        synced_gpus: bool = False,
        **arguments: Any,
    ) -> Any:
        """Continue ids [B, L]; return [B, L + n], or the output object if that is asked for.

        Raises OptionError for what cannot be honoured, before any work.
        """
        kept = kept_back(model)
        require_alone(kept.get("assistant_model"), kept.get("synced_gpus") or synced_gpus)
        streamer = kept.get("streamer") if streamer is None else streamer
        call = Call.of(
            model, input_ids, logits_processor, stopping_criteria, generation_config, arguments
        )
        with self._lock, Rows(self._decoder(model), call, self._seeds(call)) as rows:
            return decode(rows, call, streamer)

    def _decoder(self, model: PreTrainedModel) -> Decoder:
        if model.training:
            raise OptionError(
                "the model is in training mode, where dropout acts; call model.eval()"
            )
        decoder = self._decoders.get(model)
        if decoder is None:
            decoder = self._decoders[model] = self._wrap(_alias(model))
        return decoder

    def _seeds(self, call: Call) -> list[int]:
        """Return the seed of each row."""
        count = len(call.prompts)
        if self._seed is not None:
            return [(self._seed + row) % (MAX_SEED + 1) for row in range(count)]
        if not call.config.do_sample:
            return [0] * count  # greedy decoding leaves torch's generator as it was
        drawn: list[int] = torch.randint(MAX_SEED, (count,)).tolist()
        return drawn


def _require_no_prediction(choice: DrafterChoice) -> None:
    """Refuse a drafter that is told the output with each request: `generate` has no word for it."""
    needs_one = any(drafter.needs_prediction for drafter in choice.objects)
    if needs_one or any(s.kind == "prediction" and s.argument is None for s in choice.specs):
        raise OptionError("drafter 'prediction' needs a text to predict: name it, prediction:FILE")


def _alias(model: PreTrainedModel) -> PreTrainedModel:
    """Return another object for the same model: its modules and weights, under its own roof.

    A decoder that held the model itself would keep it alive, and with it its place in a weak
    dictionary. The options of `generate` come with each call, so the alias has none of its own.
    """
    neutral: Any = GenerationConfig  # its constructor is untyped
    alias = copy.copy(model)
    alias.generation_config = neutral()
    return alias
