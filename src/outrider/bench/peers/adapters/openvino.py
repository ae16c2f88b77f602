"""OpenVINO GenAI: continuous batching, plain or with prompt lookup."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai

from .protocol import Answers, Job, Peer, Settings, cut_at_end, serve

LOOKUP_TOKENS = 5
LOOKUP_NGRAM = 3
"""Tokens to copy, and the longest run to look for, as in OpenVINO's own sample."""


class OpenVinoPeer(Peer):
    """A converted model in a pipeline of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        scheduler = genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False  # or a repeat would not read its prompt
        scheduler.max_num_seqs = max(settings.batch, 1)
        # Prompts are read in one go, as elsewhere.
        scheduler.max_num_batched_tokens = settings.context * settings.batch
        scheduler.dynamic_split_fuse = False
        properties = _properties(settings)
        if settings.mode == "prompt-lookup":
            properties["prompt_lookup"] = True
        self._pipeline = genai.ContinuousBatchingPipeline(
            settings.model, scheduler, "CPU", properties
        )

    def versions(self) -> dict[str, str]:
        """Return the releases that took part."""
        return {"openvino-genai": version("openvino-genai"), "openvino": version("openvino")}

    def decode(self, job: Job) -> Answers:
        """Decode the prompts together."""
        ids = [openvino.Tensor(np.array([prompt], dtype=np.int64)) for prompt in job.prompts]
        configs = [self._config(job, index) for index in range(len(ids))]
        started = time.perf_counter()
        results = self._pipeline.generate(ids, configs)
        seconds = time.perf_counter() - started
        found = {result.m_request_id: result for result in results}
        ordered = [found[key] for key in sorted(found)]
        ends = self._settings.eos_token_ids
        answers = [cut_at_end(result.m_generation_ids[0], ends) for result in ordered]
        return Answers(answers, seconds)

    def _config(self, job: Job, index: int) -> Any:
        config = genai.GenerationConfig()
        config.max_new_tokens = job.max_new_tokens
        config.stop_token_ids = set(self._settings.eos_token_ids)
        config.apply_chat_template = False
        config.do_sample = not job.is_greedy
        config.rng_seed = job.seed + index
        if not job.is_greedy:
            config.temperature = job.temperature
        if self._settings.mode == "prompt-lookup":
            config.num_assistant_tokens = LOOKUP_TOKENS
            config.max_ngram_size = LOOKUP_NGRAM
        return config


def _properties(settings: Settings) -> dict[str, Any]:
    """Return the properties of the device; with float32 weights all is computed in float32."""
    properties: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": settings.threads,
        "ENABLE_CPU_PINNING": False,
    }
    if settings.weights == "float32":
        properties |= {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    return properties


def main() -> None:
    """Serve."""
    serve(OpenVinoPeer)
