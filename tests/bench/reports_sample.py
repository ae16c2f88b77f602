"""A report as a benchmark of several drafters and peers leaves it, made of believable figures."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from outrider.bench.base import ALL, OWN, PLAIN, Case, CostPoint, Failure, Report, Row, Spread
from outrider.machine import Machine

TASKS = ("chat", "code", "math", "summarize", "edit", "retrieval")
TEMPERATURES = (0.0, 1.0)
BATCHES = (1, 4, 16)
_TOKENS = 96
# By drafter: alpha on easy text, share of a round spent drafting, cost ratio.
_DRAFTERS = {
    "ngram": (0.38, 0.004, 0.002),
    "suffix": (0.46, 0.006, 0.002),
    "eagle": (0.62, 0.11, 0.031),
    "suffix+eagle": (0.66, 0.09, 0.024),
    "model:/models/a_very_long_name/SmolLM2-135M-draft": (0.71, 0.38, 0.31),
}
# How predictable the text of a task is.
_EASE = dict(zip(TASKS, (0.62, 0.95, 0.84, 0.9, 1.3, 1.22), strict=True))
_PEERS = {
    "transformers": (("none", "prompt-lookup", "assisted"), "float32", 0.42),
    "vllm": (("none", "ngram", "draft-model"), "float32", 0.71),
    "llama.cpp": (("none", "prompt-lookup"), "q8_0", 1.31),
}


@cache
def sample_report() -> Report:
    """Return two temperatures, three batches, six tasks, peers, and failures."""
    return Report(
        target="SmolLM2-135M-Instruct",
        workload="built-in",
        prompts=18,
        tasks=TASKS,
        max_new_tokens=_TOKENS,
        repeats=5,
        command="outrider bench --drafters 'none,ngram,suffix' --temperature 0,1 --out found",
        started="2030-01-02T03:04:05+00:00",
        machine=Machine(
            "Some Processor <8 GHz>", 8, 4, None, {"torch": "2.13.0", "outrider": "0.1.0"}
        ),
        rows=tuple(_rows()),
        costs=tuple(_costs()),
        failures=(
            Failure(
                Case("prompt-lookup", "openvino", "int8", 0.0, 4),
                "openvino is not installed",
                "make peers, or pip install openvino-genai",
            ),
            Failure(Case("eagle", temperature=1.0, batch=16), "no memory for 16 | sequences"),
        ),
        versions={"transformers": "5.24.0", "vllm": "0.32.0", "llama.cpp": "0.3.16"},
        notes=("time ran out after repeat 5 of 8", "threads were shared <with others>"),
    )


CHANGES = (
    Case("suffix", lossy="typical:0.09,0.3"),
    Case("none", weights="int8", model="int8"),
    Case("suffix", weights="int8", model="int8"),
    Case("none", model="cut:20"),
)


@cache
def changed_report() -> Report:
    """Return the sample with cases that change the answer, all faster than any that does not."""
    rows = [_changed(case, task) for case in CHANGES for task in (ALL, *TASKS)]
    plain = Case(PLAIN)
    kept = [
        replace(row, weight_bytes=538_000_000, log_likelihood=-0.25) if row.case == plain else row
        for row in sample_report().rows
    ]
    return replace(sample_report(), rows=(*kept, *rows))


def _changed(case: Case, task: str) -> Row:
    is_model = bool(case.model)
    return Row(
        case,
        task,
        _prompts(task),
        _prompts(task) * _TOKENS,
        Spread(400.0, 390.0, 410.0),
        speedup=Spread(9.0, 8.9, 9.1),
        identical=_prompts(task) if is_model and case.drafter != PLAIN else 0,
        compared=_prompts(task) if is_model and case.drafter != PLAIN else 0,
        predicted=8.8,
        over_original=Spread(12.5, 12.4, 12.6),
        differing=0.37,
        log_likelihood=-0.875,
        plain_log_likelihood=-0.25,
        divergence=0.0625 if is_model else None,
        same_choice=0.91 if is_model else None,
        weight_bytes=162_000_000 if case.model == "int8" else 400_000_000,
    )


def bare_report() -> Report:
    """Return one case on one task, of which nothing is known that can be unknown."""
    row = Row(Case("suffix"), ALL, 1, 8, Spread(10.0, 10.0, 10.0))
    return replace(
        sample_report(), rows=(row,), costs=(), failures=(), notes=(), versions={}, repeats=1
    )


def _rows() -> Iterator[Row]:
    for temperature in TEMPERATURES:
        for batch in BATCHES:
            for case in _cases(temperature, batch):
                for task in (ALL, *TASKS):
                    yield _own(case, task) if case.engine == OWN else _peer(case, task)


def _cases(temperature: float, batch: int) -> Iterator[Case]:
    for drafter in (PLAIN, *_DRAFTERS):
        if (drafter, temperature, batch) != ("eagle", 1.0, 16):  # the one that failed
            yield Case(drafter, temperature=temperature, batch=batch)
    if temperature:
        yield Case("eagle", temperature=temperature, batch=batch, rule="block")
    for engine, (modes, weights, _) in _PEERS.items():
        for mode in modes:
            yield Case(mode, engine, weights, temperature, batch)


def _own(case: Case, task: str) -> Row:
    prompts, plain = _prompts(task), 31.0 * case.batch**0.7
    row = Row(
        case,
        task,
        prompts,
        prompts * _TOKENS,
        _around(plain, case, task),
        speedup=Spread(1.0, 1.0, 1.0),
        acceptance_length=1.0,
        drafted_share=0.0,
        prefill_s=4.0,
        draft_s=0.0,
        score_s=40.0,
        host_s=2.0,
    )
    return row if case.drafter == PLAIN else _drafted(row, plain)


def _drafted(plain_row: Row, plain: float) -> Row:
    case, task = plain_row.case, plain_row.task
    rate, draft, ratio = _DRAFTERS[case.drafter]
    alpha = min(0.92, rate * _ease(task) * (0.8 if case.temperature else 1.0))
    tau = (1 - alpha**5) / (1 - alpha)
    gain = tau * (1 - draft) / (1.25 + 0.22 * case.batch**0.75)
    differs = case.drafter == "ngram" and task in (ALL, "chat")
    compared = 0 if case.rule == "block" else plain_row.prompts
    return replace(
        plain_row,
        tokens_per_second=_around(plain * gain, case, task),
        speedup=_around(gain, case, task),
        identical=compared - differs,
        compared=compared,
        differences=("chat-2: token 17 is 5, not 9",) if differs else (),
        acceptance_length=tau,
        acceptance_rate=alpha,
        drafted_share=0.9,
        draft_tokens=4.0,
        conditional_acceptance=tuple(alpha * 0.93**depth for depth in range(6)),
        draft_s=40.0 * draft,
        score_s=36.0,
        host_s=3.1,
        cost_ratio=ratio,
        bound=plain * gain * 1.18,
        share_of_bound=1 / 1.18,
        leviathan=tau / (4 * ratio + 1),
        predicted=gain * (1.0 + 0.12 * _wobble(case, task)),
        peak_memory=1_350_000_000 + 90_000_000 * case.batch,
        why=f"scoring 5 rows costs {1.2 + 0.1 * case.batch:.1f}x one row on this machine",
    )


def _peer(case: Case, task: str) -> Row:
    _, _, pace = _PEERS[case.engine]
    own = None if case.drafter == PLAIN else 0.85 + 0.3 * _ease(task)
    rate = 31.0 * case.batch**0.7 * pace * (own or 1.0)
    same = case.weights == "float32" and not case.temperature
    prompts = _prompts(task)
    return Row(
        case,
        task,
        prompts,
        prompts * _TOKENS,
        _around(rate, case, task),
        speedup=_around(pace * (own or 1.0), case, task) if case.weights == "float32" else None,
        own_speedup=own,
        identical=prompts if same else 0,
        compared=prompts if same else 0,
        peak_memory=2_100_000_000,
    )


def _costs() -> Iterator[CostPoint]:
    for batch in BATCHES:
        for context in (64, 1024):
            for rows in (1, 2, 4, 8, 16, 32):
                work = 1 + 0.045 * (batch * rows - 1) + 1e-5 * context * batch
                yield CostPoint("float32", batch, context, rows, 0.031 * work)


def _prompts(task: str) -> int:
    return 18 if task == ALL else 3


def _ease(task: str) -> float:
    return _EASE.get(task, sum(_EASE.values()) / len(_EASE))


def _around(value: float, case: Case, task: str) -> Spread:
    width = 0.02 + 0.03 * abs(_wobble(case, task))
    return Spread(value, value * (1 - width), value * (1 + width))


def _wobble(case: Case, task: str) -> float:
    """Return a number from -1 to 1 that is always the same for a case and task."""
    told = f"{case.label}, {case.temperature:g}, {case.batch}, {task}"
    return zlib.crc32(told.encode()) % 2001 / 1000 - 1
