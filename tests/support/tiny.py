"""Tiny random decoders of many architectures, in float64 so that no two logits tie."""

from __future__ import annotations

import functools
from copy import deepcopy
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

VOCAB = 64

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
_GROUPED: dict[str, Any] = _COMMON | {"num_key_value_heads": 2, "head_dim": 8}
_EXPERTS: dict[str, Any] = _GROUPED | {"num_experts_per_tok": 2, "moe_intermediate_size": 24}

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": _GROUPED,
    "qwen2": _GROUPED,
    "qwen3": _GROUPED,
    "mistral": _GROUPED | {"sliding_window": 8},
    "gemma2": _GROUPED
    | {
        "sliding_window": 8,
        "query_pre_attn_scalar": 8,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 10.0,
    },
    "gemma3_text": _GROUPED
    | {
        "sliding_window": 8,
        "query_pre_attn_scalar": 8,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "phi": _COMMON | {"num_key_value_heads": 2},
    "phi3": _COMMON | {"num_key_value_heads": 2, "sliding_window": 8},
    "gpt2": _COMMON | {"n_positions": 256},
    "gpt_neox": _COMMON | {"rotary_pct": 0.5},
    "mixtral": _GROUPED
    | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "qwen3_moe": _EXPERTS | {"num_experts": 4, "decoder_sparse_step": 1},
}


def tiny_model(
    architecture: str = "llama",
    *,
    seed: int = 0,
    scale: float = 4.0,
    dtype: torch.dtype = torch.float64,
    **overrides: Any,
) -> PreTrainedModel:
    """Build a random decoder; weight matrices are scaled so that greedy text is not constant."""
    config = AutoConfig.for_model(
        architecture, **(ARCHITECTURES.get(architecture, _GROUPED) | overrides)
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        # Grouped matrix products know no float64.
        from_config: Any = AutoModelForCausalLM.from_config  # untyped
        model: Any = from_config(config, dtype=dtype, experts_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    model.generation_config.pad_token_id = 0
    built: PreTrainedModel = model.eval()
    return built


def noisy_copy(model: PreTrainedModel, noise: float, seed: int = 1) -> PreTrainedModel:
    """Copy a model and add normal noise to every weight; no noise gives an exact copy."""
    copy = deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in copy.parameters():
            drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(noise * drawn.to(parameter.dtype))
    return copy


@functools.cache
def shared_model(architecture: str = "llama") -> PreTrainedModel:
    """Return the model of an architecture, built once; tests do not change it."""
    return tiny_model(architecture)


def random_ids(length: int, seed: int = 0, vocab: int = VOCAB) -> tuple[int, ...]:
    """Return token ids drawn evenly."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(vocab, (length,), generator=generator).tolist())


def greedy_ids(model: PreTrainedModel, prompt: tuple[int, ...], count: int) -> list[int]:
    """Return what Transformers' own greedy generation adds to a prompt."""
    generate: Any = model.generate  # untyped
    output = generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        max_new_tokens=count,
    )
    ids: list[int] = output[0, len(prompt) :].tolist()
    return ids
