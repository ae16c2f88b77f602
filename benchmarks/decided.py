"""Models of random weights whose text is decided, so that its timing can be trusted.

Plain random weights leave many tokens all but tied, and the rounding of wider passes then changes
the text and the acceptance with it. Here the embeddings are loud, and the output layer knows them:
each token is decided by the one before it, by far. All weights are read and used as ever.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig

from outrider.drafters.base import Drafter, DraftRequest
from outrider.types import DraftTree, TokenIds

_LOUD = 100.0  # embeddings over what the layers add to them


def successors(vocab: int) -> Tensor:
    """Return the token that follows each token: all of them, in one circle."""
    shift = int(vocab * 0.618) | 1
    while math.gcd(shift, vocab) > 1:
        shift += 2
    return (torch.arange(vocab) + shift) % vocab


def guesses(vocab: int, acceptance: float) -> Tensor:
    """Return what the assistant takes to follow each token: right for a share of them."""
    generator = torch.Generator().manual_seed(1)
    (wrong,) = torch.where(torch.rand(vocab, generator=generator) >= acceptance)
    guessed = successors(vocab)
    guessed[wrong] = guessed[wrong.roll(1)]
    return guessed


def decided_model(
    following: Tensor, *, dtype: torch.dtype, device: torch.device, **sizes: Any
) -> Any:
    """Return a Llama in which `following[t]` comes after token t; `sizes` are of its config."""
    config = LlamaConfig(
        vocab_size=len(following),
        bos_token_id=None,
        eos_token_id=None,
        tie_word_embeddings=False,
        **sizes,
    )
    torch.manual_seed(0)
    from_config: Any = AutoModelForCausalLM.from_config  # untyped
    with torch.device(device):
        model = from_config(config, dtype=dtype)
    with torch.no_grad():
        embedding = model.get_input_embeddings().weight
        embedding.normal_()
        known = embedding * config.hidden_size**-0.5
        model.get_output_embeddings().weight.index_copy_(0, following.to(device), known)
        embedding.mul_(_LOUD)
    model.generation_config.pad_token_id = 0
    return model.eval()


class ReplayDrafter(Drafter[list[int]]):
    """Proposes the recorded text, but after some tokens what the assistant takes for next."""

    name = "replay"

    def __init__(self, recorded: Sequence[int], guessed: Sequence[int]) -> None:
        self._drafts = [recorded[0], *(guessed[token] for token in recorded[:-1])]

    def begin(self, request: DraftRequest) -> list[int]:
        return [len(request.prompt_ids)]

    def propose(self, states: Sequence[list[int]], budgets: Sequence[int]) -> list[DraftTree]:
        return [
            DraftTree.chain(self._drafts[state[0] : state[0] + budget])
            for state, budget in zip(states, budgets, strict=True)
        ]

    def observe(
        self,
        states: Sequence[list[int]],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor] = (),
    ) -> None:
        for state, tokens in zip(states, committed, strict=True):
            state[0] += len(tokens)
