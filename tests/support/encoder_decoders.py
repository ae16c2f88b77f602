"""Tiny random encoder-decoders of several families, in float64 so that no two logits tie."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedModel

from outrider.drafters.encoder_decoder import EncoderDecoderDrafter
from outrider.engine.request import Request
from outrider.sampling.params import SamplingParams
from outrider.targets.encoder_decoder import EncoderDecoderTarget
from support.tiny import VOCAB, noisy_copy, random_ids

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "d_model": 32,
    "pad_token_id": 0,
    "eos_token_id": None,
    "decoder_start_token_id": 0,
    "tie_word_embeddings": False,
}
# Few buckets of short distances, so that a text comes to all of them.
_RELATIVE: dict[str, Any] = _COMMON | {
    "d_kv": 8,
    "d_ff": 96,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
}
_ABSOLUTE: dict[str, Any] = _COMMON | {
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "forced_eos_token_id": None,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "t5": _RELATIVE,
    "mt5": _RELATIVE | {"feed_forward_proj": "gated-gelu"},
    "umt5": _RELATIVE,
    "bart": _ABSOLUTE,
    "mbart": _ABSOLUTE | {"scale_embedding": True},
    "marian": _ABSOLUTE | {"scale_embedding": True},
    "pegasus": _ABSOLUTE,
    # Where it stands, a token of padding has no position: here no text holds one.
    "m2m_100": _ABSOLUTE | {"scale_embedding": True, "pad_token_id": 13},
}

_DRAWN = {
    "t5": (4.0, 7),
    "mt5": (6.0, 1),
    "umt5": (6.0, 1),
    "bart": (2.0, 0),
    "mbart": (1.5, 2),
    "marian": (4.0, 2),
    "pegasus": (2.0, 0),
    "m2m_100": (4.0, 0),
}
"""The scale of weight matrices, and the seed, that give texts that vary and follow the input."""

INPUTS = (random_ids(5, 1), random_ids(12, 2) * 2, random_ids(9, 3), (7,))
"""Of different lengths: a batch of them is ragged."""


def tiny_encoder_decoder(
    family: str = "t5",
    *,
    seed: int | None = None,
    scale: float | None = None,
    dtype: torch.dtype = torch.float64,
    **overrides: Any,
) -> PreTrainedModel:
    """Build a random model; weight matrices are scaled so that greedy text is not constant."""
    usual_scale, usual_seed = _DRAWN[family]
    config = AutoConfig.for_model(family, **(FAMILIES[family] | overrides))
    with torch.random.fork_rng():
        torch.manual_seed(usual_seed if seed is None else seed)
        from_config: Any = AutoModelForSeq2SeqLM.from_config  # untyped
        model: Any = from_config(config, dtype=dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 and parameter.requires_grad:  # sinusoids stay what they are
                parameter.mul_(usual_scale if scale is None else scale)
    built: PreTrainedModel = model.eval()
    return built


@functools.cache
def shared_pair(family: str = "t5") -> PreTrainedModel:
    """Return the model of a family, built once; tests do not change it."""
    return tiny_encoder_decoder(family)


@functools.cache
def shared_pair_target(family: str = "t5") -> EncoderDecoderTarget:
    """Return a target over the shared model of a family; runs leave it as it was."""
    return EncoderDecoderTarget(shared_pair(family))


@functools.cache
def _draft_target(kind: str, family: str) -> EncoderDecoderTarget:
    if kind == "exact":
        return EncoderDecoderTarget(shared_pair(family))
    if kind == "noisy":
        return EncoderDecoderTarget(noisy_copy(shared_pair(family), 0.005))
    return EncoderDecoderTarget(tiny_encoder_decoder("t5", seed=7, num_decoder_layers=1))


def draft_pair(kind: str, family: str = "t5", **options: Any) -> EncoderDecoderDrafter:
    """Return a draft model for the shared model: "exact", "noisy" or "unrelated" to it."""
    model = _draft_target(kind, family)
    return EncoderDecoderDrafter(model, vocab_size=VOCAB, shared_ids=VOCAB, **options)


def read_request(
    input_ids: Sequence[int],
    *,
    prompt_ids: Sequence[int] = (0,),
    eos: Sequence[int] = (),
    prediction: Sequence[int] | None = None,
    **options: Any,
) -> Request:
    """Return a request about an input; `options` are those of SamplingParams."""
    params = SamplingParams(**options)
    return Request(
        prompt_ids=tuple(prompt_ids),
        input=tuple(input_ids),
        params=params,
        seed=0 if params.seed is None else params.seed,
        eos_token_ids=tuple(eos),
        prediction_ids=None if prediction is None else tuple(prediction),
    )


def greedy_output(
    model: PreTrainedModel, input_ids: Sequence[int], count: int, **options: Any
) -> list[int]:
    """Return what Transformers' own greedy generation says of an input, what it starts from cut."""
    generate: Any = model.generate  # untyped
    inputs = torch.tensor([list(input_ids)])
    output = generate(inputs, do_sample=False, max_new_tokens=count, **options)
    ids: list[int] = output[0, 1:].tolist()
    return ids
