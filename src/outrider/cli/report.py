"""A finished request in words for people, and as values for JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.cli.compare import Comparison
    from outrider.cli.explain import Explanation
    from outrider.engine.result import Result
    from outrider.engine.stats import Stats
    from outrider.types import TokenLogprobs


def summary(stats: Stats, comparison: Comparison | None) -> list[str]:
    """Say what a request cost, a line for each thing there is to say."""
    speed = _number(stats.tokens_per_second, "{:.1f} tokens/s")
    drafted = "nothing drafted"
    if stats.proposed:
        rate = _number(stats.acceptance_rate, "{:.0%}")
        drafted = f"{rate} of {stats.proposed} drafted tokens accepted"
    lines = [
        f"{stats.tokens} tokens in {stats.wall_s:.2f} s, {speed}",
        f"acceptance length {_number(stats.acceptance_length, '{:.2f}')}, {drafted}",
    ]
    if stats.lossy is not None:
        lines.append(f"LOSSY ({stats.lossy}): this text may differ from the target's own")
    if comparison is not None:
        plain = _number(comparison.plain_tokens_per_second, "{:.1f} tokens/s")
        verdict = "yes" if comparison.identical else f"no ({comparison.difference})"
        lines.append(
            f"plain decoding {plain}, speedup {_number(comparison.speedup, '{:.2f}x')}, "
            f"identical: {verdict}"
        )
    return lines


def _number(value: float | None, form: str) -> str:
    return "unknown" if value is None else form.format(value)


def document(
    result: Result, comparison: Comparison | None, explanation: Explanation | None
) -> dict[str, Any]:
    """Return all there is to know of a result, ready for JSON."""
    document: dict[str, Any] = {
        "text": result.text,
        "token_ids": list(result.token_ids),
        "finish_reason": result.finish_reason,
        "seed": result.seed,
        "stats": result.stats.to_dict(),
    }
    if result.lossy is not None:
        document["lossy"] = result.lossy
    if result.logprobs is not None:
        document["logprobs"] = [_logprobs(record) for record in result.logprobs]
    if comparison is not None:
        document["compare"] = comparison.to_dict()
    if explanation is not None:
        document["explain"] = explanation.to_dict()
    return document


def _logprobs(record: TokenLogprobs) -> dict[str, Any]:
    return {
        "chosen": _finite(record.chosen),
        "top": [[token_id, _finite(value)] for token_id, value in record.top],
    }


def _finite(value: float) -> float | None:
    # JSON has no infinities: a token the model gives no chance at all is null.
    return value if math.isfinite(value) else None
