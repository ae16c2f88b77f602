"""Transformers: `generate` as it is, with prompt lookup, or assisted by a draft model."""

from __future__ import annotations

import time
from typing import Any

import torch
import transformers

from .protocol import Answers, Counts, Job, Peer, Settings, cut_at_end, serve

LOOKUP_TOKENS = 10
"""Tokens to copy from the prompt, as Transformers' documentation shows it."""


class TransformersPeer(Peer):
    """A causal language model, and with it the model that assists it."""

    def __init__(self, settings: Settings) -> None:
        torch.set_num_threads(settings.threads)
        self._settings = settings
        self._model = _load(settings.model, settings)
        self._passes = _Passes(self._model)
        self._how: dict[str, Any] = {}
        if settings.mode == "assisted":
            assert settings.draft_model is not None
            self._how = {"assistant_model": _load(settings.draft_model, settings)}
        elif settings.mode == "prompt-lookup":
            self._how = {"prompt_lookup_num_tokens": LOOKUP_TOKENS}

    def versions(self) -> dict[str, str]:
        """Return the releases that took part."""
        return {"transformers": str(transformers.__version__), "torch": str(torch.__version__)}

    def device_memory(self) -> int | None:
        """Return the most bytes held on the GPU, if the model is on one."""
        if self._model.device.type != "cuda":
            return None
        return int(torch.cuda.max_memory_allocated(self._model.device))

    def decode(self, job: Job) -> Answers:
        """Decode the prompts, padded on the left to one length."""
        ends = list(self._settings.eos_token_ids)
        pad = ends[0] if ends else 0
        width = max(map(len, job.prompts))
        rows = [[pad] * (width - len(prompt)) + list(prompt) for prompt in job.prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in job.prompts]
        options = self._how | _sampling(job) | {"pad_token_id": pad, "eos_token_id": ends or None}
        device = self._model.device
        ids, attention = torch.tensor(rows, device=device), torch.tensor(mask, device=device)
        torch.manual_seed(job.seed)
        self._passes.clear()
        _wait_for(device)
        started = time.perf_counter()
        output = self._model.generate(
            ids, attention_mask=attention, max_new_tokens=job.max_new_tokens, **options
        )
        _wait_for(device)
        seconds = time.perf_counter() - started
        answers = [cut_at_end(row, ends) for row in output[:, width:].tolist()]
        return Answers(answers, seconds, self._passes.counts(answers, width))


class _Passes:
    """Counts the passes of the model; the prompts and tokens of a batch go through it together."""

    def __init__(self, model: Any) -> None:
        self.clear()
        model.register_forward_pre_hook(self._note, with_kwargs=True)

    def clear(self) -> None:
        """Forget what was counted."""
        self._widths: list[int] = []

    def _note(self, module: Any, inputs: Any, named: dict[str, Any]) -> None:
        ids = named["input_ids"] if "input_ids" in named else inputs[0]
        self._widths.append(int(ids.shape[1]))

    def counts(self, answers: list[list[int]], prompt: int) -> Counts:
        """Return the counts: the first pass also reads the prompt, each begins with a kept token.

        A batch is decoded plainly, one token a pass for each of its prompts.
        """
        tokens, passes = sum(map(len, answers)), len(self._widths)
        if len(answers) > 1:
            return Counts(rounds=tokens, proposed=0, accepted=0)
        return Counts(
            rounds=passes,
            proposed=max(0, sum(self._widths) - prompt - (passes - 1)),
            accepted=max(0, tokens - passes),
        )


def _load(folder: str, settings: Settings) -> Any:
    load: Any = transformers.AutoModelForCausalLM.from_pretrained
    model = load(folder, dtype=getattr(torch, settings.weights))
    return model.to(settings.device).eval()


def _sampling(job: Job) -> dict[str, Any]:
    """Return the options of `generate`, with all off that the model's configuration may set."""
    off = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_new_tokens": None}
    if job.is_greedy:
        # Given as None, or what the model's own configuration samples with raises warnings.
        return (
            {"do_sample": False} | off | dict.fromkeys(("temperature", "top_k", "top_p", "min_p"))
        )
    shape = {"top_k": 0, "top_p": 1.0, "min_p": None}
    return {"do_sample": True, "temperature": job.temperature} | shape | off


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main() -> None:
    """Serve."""
    serve(TransformersPeer)
