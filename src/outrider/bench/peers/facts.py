"""What a peer is told of a target, and what its answers are measured by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outrider.sampling.defaults import eos_token_ids
from outrider.targets.loading import read_config
from outrider.targets.quiet import quiet_transformers
from outrider.targets.skeleton import build_skeleton, kv_bytes_per_token
from outrider.targets.sources import Source, find_source

_MOST_CONTEXT = 4096


@dataclass(frozen=True, slots=True)
class Facts:
    """Of a target: its token ids, those that end a text, and what a text takes."""

    vocab_size: int
    eos_token_ids: tuple[int, ...]
    context: int
    """Most tokens of a prompt and its answer."""
    bytes_per_token: int
    """Of keys and values, in float32."""

    def problem(self, answer: object, most: int) -> str | None:
        """Say in words why something is no answer of at most so many tokens, None if it is one.

        It holds ids of the vocabulary, an end of text only as the last, and is shorter than asked
        for only if it has one.
        """
        if not isinstance(answer, list) or not answer:
            return "no list of token ids"
        for token in answer:
            if type(token) is not int or not 0 <= token < self.vocab_size:
                return f"{token!r} is none of {self.vocab_size} token ids"
        if len(answer) > most:
            return f"{len(answer)} tokens where {most} were asked for"
        if any(token in self.eos_token_ids for token in answer[:-1]):
            return "it goes on behind an end of text"
        if len(answer) < most and answer[-1] not in self.eos_token_ids:
            return f"{len(answer)} tokens without an end of text where {most} were asked for"
        return None


def read_facts(target: str, context: int | None = None) -> Facts:
    """Read the facts of a target, no weights; `context` None is all it can, up to 4096 tokens.

    Raises LoadError.
    """
    import torch

    source = find_source(target)
    config = read_config(source, trust_remote_code=False)
    text: Any = config.get_text_config(decoder=True)
    skeleton = build_skeleton(config, source.spec, trust_remote_code=False)
    size = None if skeleton is None else kv_bytes_per_token(skeleton, torch.float32)
    possible = int(getattr(text, "max_position_embeddings", None) or _MOST_CONTEXT)
    return Facts(
        vocab_size=int(text.vocab_size),
        eos_token_ids=eos_token_ids(_generation_config(source), config),
        context=min(possible, _MOST_CONTEXT) if context is None else context,
        bytes_per_token=size or 0,
    )


def _generation_config(source: Source) -> Any | None:
    """Return the configuration that comes with the weights, None if none does."""
    from transformers import GenerationConfig

    if source.gguf is not None:  # it is made from the model's own
        return None
    with quiet_transformers():
        try:
            return GenerationConfig.from_pretrained(source.location, **source.options)
        except OSError:
            return None
