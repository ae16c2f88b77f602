"""llama.cpp through llama-cpp-python: plain, or with its prompt lookup. One prompt at a time."""

from __future__ import annotations

import time
from typing import Any

import llama_cpp
from llama_cpp.llama_speculative import LlamaDraftModel, LlamaPromptLookupDecoding

from .protocol import Answers, Counts, Job, Peer, Settings, serve

LOOKUP_TOKENS = 2
"""Tokens to copy from the prompt, as its documentation advises for a CPU."""
_MOST_SEED = 2**32


class LlamaCppPeer(Peer):
    """A GGUF file in a context of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        drafts = settings.mode == "prompt-lookup"
        self._lookup = _CountedLookup() if drafts else None
        options: dict[str, Any] = {}
        if settings.weights == "float32":  # then keys and values are, too
            options = dict.fromkeys(("type_k", "type_v"), llama_cpp.GGML_TYPE_F32)
        self._model = llama_cpp.Llama(
            settings.model,
            n_ctx=settings.context,
            n_threads=settings.threads,
            n_threads_batch=settings.threads,
            draft_model=self._lookup,
            logits_all=drafts,  # else a context beyond one batch fails with drafts
            verbose=False,
            **options,
        )
        self._rounds = 0
        self._eval = self._model.eval
        self._model.eval = self._counted_eval

    def versions(self) -> dict[str, str]:
        """Return the releases that took part."""
        return {"llama-cpp-python": str(llama_cpp.__version__)}

    def decode(self, job: Job) -> Answers:
        """Decode the one prompt."""
        (prompt,) = job.prompts
        self._model.reset()  # or a repeat would not read its prompt
        self._model.set_seed(job.seed % _MOST_SEED)
        self._rounds = 0
        if self._lookup is not None:
            self._lookup.proposed = 0
        answer: list[int] = []
        started = time.perf_counter()
        tokens = self._model.generate(
            prompt, temp=job.temperature, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.0
        )
        for token in tokens:
            answer.append(int(token))
            if token in self._settings.eos_token_ids or len(answer) == job.max_new_tokens:
                break
        seconds = time.perf_counter() - started
        return Answers([answer], seconds, self._counts(len(answer)))

    def _counted_eval(self, tokens: Any) -> None:
        self._rounds += 1
        self._eval(tokens)

    def _counts(self, tokens: int) -> Counts:
        proposed = 0 if self._lookup is None else self._lookup.proposed
        return Counts(rounds=self._rounds, proposed=proposed, accepted=tokens - self._rounds)


class _CountedLookup(LlamaDraftModel):  # type: ignore[misc]
    """Prompt lookup that counts what it proposes."""

    def __init__(self) -> None:
        self._lookup = LlamaPromptLookupDecoding(num_pred_tokens=LOOKUP_TOKENS)
        self.proposed = 0

    def __call__(self, input_ids: Any, /, **options: Any) -> Any:
        drafted = self._lookup(input_ids, **options)
        self.proposed += len(drafted)
        return drafted


def main() -> None:
    """Serve."""
    serve(LlamaCppPeer)
