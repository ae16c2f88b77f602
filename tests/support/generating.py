"""`generate` by itself and with outrider in its loop, side by side."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.generation.utils import GenerateDecoderOnlyOutput

import outrider
from outrider.dropin.custom_generate import CustomGenerate
from support.runs import draft_model
from support.tiny import ARCHITECTURES, random_ids, tiny_model

PAD = 0
EVERYTHING: dict[str, Any] = {
    "return_dict_in_generate": True,
    "output_scores": True,
    "output_logits": True,
}
FAMILIES = ("llama", "gpt2", "opt", "qwen2", "mistral", "gemma", "gemma3_text", "gpt_neox")

# Families that are not among the engine's own.
_MORE: dict[str, dict[str, Any]] = {
    "gemma": ARCHITECTURES["llama"] | {"tie_word_embeddings": False},
    "opt": {
        "vocab_size": 64,
        "hidden_size": 32,
        "ffn_dim": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 256,
        "word_embed_proj_dim": 32,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    },
}


@functools.cache
def family(name: str) -> PreTrainedModel:
    """Return a random float64 model of a family, whose greedy text is not constant."""
    if name not in _MORE:
        return tiny_model(name)
    config = AutoConfig.for_model(name, **_MORE[name])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        from_config: Any = AutoModelForCausalLM.from_config  # untyped
        model: Any = from_config(config, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)
    model.generation_config.pad_token_id = PAD
    built: PreTrainedModel = model.eval()
    return built


@functools.cache
def copying() -> CustomGenerate:
    """Return outrider with a drafter that any model can have, drafting in every round."""
    return outrider.custom_generate(drafter="ngram", max_draft=4)


@functools.cache
def knowing() -> CustomGenerate:
    """Return outrider with a drafter for the llama whose drafts are often right."""
    return outrider.custom_generate(drafter=draft_model("noisy"), max_draft=5)


def prompts(*lengths: int, repeat: int = 2) -> dict[str, Tensor]:
    """Return random prompts, padded on the left, each its text `repeat` times over."""
    rows = [
        tuple(token or 1 for token in random_ids(length, seed)) * repeat
        for seed, length in enumerate(lengths, 1)
    ]
    width = max(map(len, rows))
    ids = [[PAD] * (width - len(row)) + list(row) for row in rows]
    mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


def ending(rows: Tensor) -> int:
    """Return a token that ends rows [B, n] of texts apart, and none of them at once."""
    for token in rows.flatten().tolist():
        firsts = [row.index(token) if token in row else len(row) for row in rows.tolist()]
        if 1 <= min(firsts) < max(firsts) - 3:
            return int(token)
    raise AssertionError("no token ends these rows apart")


def both(
    model: PreTrainedModel,
    inputs: dict[str, Tensor],
    custom: CustomGenerate,
    make: Callable[[], dict[str, Any]] = dict,
    **options: Any,
) -> tuple[Any, Any]:
    """Return what `generate` gives by itself and with outrider; `make` builds options for each."""
    generate: Any = model.generate  # untyped
    options = {"do_sample": False, "max_new_tokens": 16} | options
    expected = generate(**inputs, **options, **make())
    return expected, generate(**inputs, **options, **make(), custom_generate=custom)


def assert_same_output(found: Any, expected: Any) -> None:
    """Assert that two outputs are the same, but for the cache, which outrider does not return."""
    assert type(found) is type(expected)
    if isinstance(expected, Tensor):
        assert found.dtype == expected.dtype
        assert found.tolist() == expected.tolist()
        return
    assert isinstance(expected, GenerateDecoderOnlyOutput)
    assert list(found.keys()) == [name for name in expected.keys() if name != "cache"]  # noqa: SIM118
    assert_same_output(found.sequences, expected.sequences)
    for name in ("scores", "logits"):
        assert_same_steps(getattr(found, name), getattr(expected, name))


def assert_same_steps(found: Sequence[Tensor] | None, expected: Sequence[Tensor] | None) -> None:
    """Assert that scores or logits are the same up to rounding, or missing from both."""
    if expected is None:
        assert found is None
        return
    assert isinstance(found, tuple)
    for ours, theirs in zip(found, expected, strict=True):
        assert not ours.is_inference()
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
