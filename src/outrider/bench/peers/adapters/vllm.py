"""vLLM in this process: plain, with n-grams, a draft model or an EAGLE-3 head."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Any

import torch
import vllm

from .protocol import Answers, Counts, Job, Peer, Settings, cut_at_end, serve

_DRAFTED = "vllm:spec_decode_num_draft_tokens"
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens"


class VllmPeer(Peer):
    """An engine, loaded with the drafter of its mode."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engine = vllm.LLM(
            settings.model,
            dtype=settings.weights,
            skip_tokenizer_init=True,
            generation_config="vllm",  # nothing of the model's own
            max_model_len=settings.context,
            max_num_seqs=settings.batch,
            enable_prefix_caching=False,  # or a repeat would not read its prompt
            disable_log_stats=False,
            speculative_config=_drafting(settings),
        )
        torch.set_num_threads(settings.threads)

    def versions(self) -> dict[str, str]:
        """Return the releases that took part."""
        return {"vllm": str(vllm.__version__), "torch": version("torch")}

    def decode(self, job: Job) -> Answers:
        """Decode the prompts together."""
        prompts = [{"prompt_token_ids": list(prompt)} for prompt in job.prompts]
        params = [self._params(job, place) for place in range(len(prompts))]
        before = self._counted()
        started = time.perf_counter()
        outputs = self._engine.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - started
        ends = self._settings.eos_token_ids
        answers = [cut_at_end(list(output.outputs[0].token_ids), ends) for output in outputs]
        proposed, accepted = (b - a for a, b in zip(before, self._counted(), strict=True))
        rounds = sum(map(len, answers)) - accepted
        return Answers(answers, seconds, Counts(rounds, proposed, accepted))

    def _params(self, job: Job, place: int) -> Any:
        return vllm.SamplingParams(
            temperature=job.temperature,
            seed=None if job.is_greedy else job.seed + place,
            max_tokens=job.max_new_tokens,
            stop_token_ids=list(self._settings.eos_token_ids),
            detokenize=False,
        )

    def _counted(self) -> tuple[int, int]:
        """Return the tokens proposed and accepted since the engine was loaded."""
        values = {metric.name: getattr(metric, "value", 0) for metric in self._engine.get_metrics()}
        return int(values.get(_DRAFTED, 0)), int(values.get(_ACCEPTED, 0))


def _drafting(settings: Settings) -> dict[str, Any] | None:
    """Return how vLLM drafts in a mode: with the lengths that its documentation shows."""
    if settings.mode == "ngram":
        lookup = {"prompt_lookup_min": 2, "prompt_lookup_max": 4}
        return {"method": "ngram", "num_speculative_tokens": 5} | lookup
    if settings.mode == "draft-model":
        model = {"model": settings.draft_model}
        return {"method": "draft_model", "num_speculative_tokens": 5} | model
    if settings.mode == "eagle3":
        return {"method": "eagle3", "num_speculative_tokens": 3, "model": settings.head}
    return None


def main() -> None:
    """Serve."""
    serve(VllmPeer)
