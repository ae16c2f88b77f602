"""Host time of the suffix drafter: proposing, and taking in a token, at growing context.

Run `python benchmarks/suffix_propose.py`. Prints medians in microseconds for repetitive text (a
passage that comes again with every seventeenth token changed) and random text (every token drawn
from 2,000), and ends with the same numbers as one line of JSON. Neither should grow with the
context.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from typing import cast

from outrider.drafters.base import DraftRequest, DraftSampler
from outrider.drafters.suffix import SuffixDrafter

CONTEXTS = (1_000, 10_000, 100_000)
DRAFT_LENGTH = 15
ROUNDS = 200
TOKENS_PER_ROUND = 3


def repetitive(num_tokens: int) -> list[int]:
    """Return a passage of 500 tokens over and over, slightly changed each time."""
    source = random.Random(0)
    passage = [source.randrange(2000) for _ in range(500)]
    return [source.randrange(2000) if i % 17 == 0 else passage[i % 500] for i in range(num_tokens)]


def uniform(num_tokens: int) -> list[int]:
    """Return tokens drawn evenly from a vocabulary of 2,000."""
    source = random.Random(1)
    return [source.randrange(2000) for _ in range(num_tokens)]


def measure(text: list[int], num_prompt: int) -> dict[str, float]:
    """Time rounds that follow the given text; a draft is wanted whatever its promise."""
    drafter = SuffixDrafter(length=DRAFT_LENGTH, min_probability=0.0)
    request = DraftRequest(tuple(text[:num_prompt]), len(text), cast("DraftSampler", None))
    start = time.perf_counter()
    state = drafter.begin(request)
    begin = time.perf_counter() - start
    propose, observe, drafted = [], [], 0
    for position in range(num_prompt, len(text), TOKENS_PER_ROUND):
        start = time.perf_counter()
        (tree,) = drafter.propose([state], [DRAFT_LENGTH])
        middle = time.perf_counter()
        drafter.observe([state], [text[position : position + TOKENS_PER_ROUND]])
        observe.append((time.perf_counter() - middle) / TOKENS_PER_ROUND)
        propose.append(middle - start)
        drafted += len(tree)
    return {
        "propose_us": statistics.median(propose) * 1e6,
        "observe_us_per_token": statistics.median(observe) * 1e6,
        "prompt_us_per_token": begin / num_prompt * 1e6,
        "drafted": drafted / len(propose),
    }


def main() -> None:
    """Print one row a text and context length."""
    print(f"{'text':12}{'context':>9}{'propose':>10}{'observe':>10}{'prompt':>10}{'drafted':>10}")
    print(f"{'':12}{'tokens':>9}{'us':>10}{'us/token':>10}{'us/token':>10}{'tokens':>10}")
    rows: list[dict[str, float | str]] = []
    for make in (repetitive, uniform):
        for context in CONTEXTS:
            found = measure(make(context + ROUNDS * TOKENS_PER_ROUND), context)
            print(f"{make.__name__:12}{context:9}" + "".join(f"{v:10.1f}" for v in found.values()))
            rows.append({"text": make.__name__, "context": context, **found})
    print(json.dumps({"suffix_propose": rows}))


if __name__ == "__main__":
    main()
