"""Host time of a 64-node tree: growing it, laying it out for a pass, and walking it.

Run `python benchmarks/tree_host.py`. No model runs. Prints one line of JSON: medians in
microseconds of each part, and their sums over a round of an eager and of a compiled target.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable

import torch

from outrider.targets.base import Rows
from outrider.targets.compiled import _Table
from outrider.targets.padded import Branches
from outrider.targets.work import CachedSequence, Span, Work
from outrider.trees.growth import Growth
from outrider.trees.layout import ancestors, depths, row_paths
from outrider.trees.marginals import best_first
from outrider.types import DraftTree
from outrider.verification import verify_match

NODES, LEVELS, WIDTH = 64, 6, 8
CONTEXT, BUCKET = 500, 768
REPEATS = 400


def candidates(count: int, source: random.Random) -> tuple[list[int], list[float]]:
    """Return different tokens, with chances that fall."""
    chances = sorted((source.random() for _ in range(count)), reverse=True)
    return source.sample(range(50_000), count), [chance / sum(chances) for chance in chances]


def grown(levels: list[list[tuple[list[int], list[float]]]]) -> DraftTree:
    """Grow a tree from candidates at hand for each level and frontier node."""
    growth = Growth(WIDTH)
    for level in levels:
        growth.lineage()
        part = level[: len(growth.frontier)]
        growth.add([tokens for tokens, _ in part], [chances for _, chances in part])
    return growth.tree(NODES)


class Walker:
    """A target whose token at each row leads as deep into the tree as it goes."""

    def __init__(self, tree: DraftTree) -> None:
        *_, self._path = sorted(row_paths(tree), key=len)
        self._steps = iter((*self._path, -1))

    def token(self, row: int) -> int:
        """Return the next token on the way down."""
        return next(self._steps)

    def probs(self, row: int) -> torch.Tensor:
        """Raise: the match rule asks for tokens alone."""
        raise NotImplementedError


def pad(span: Span) -> None:
    """Write the tree into a mask, as the padded plan of an eager pass does."""
    branches = span.branches()
    assert isinstance(branches, Branches)
    visible = torch.ones(len(span), BUCKET, dtype=torch.bool)
    branches.apply(visible, torch.arange(BUCKET))


def median_us(part: Callable[[], object]) -> float:
    """Return the median time of a part."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        part()
        times.append(time.perf_counter() - started)
    return round(statistics.median(times) * 1e6, 1)


def main() -> None:
    """Time each part."""
    torch.set_num_threads(1)
    source = random.Random(0)
    levels = [[candidates(WIDTH, source) for _ in range(WIDTH)] for _ in range(LEVELS)]
    tokens = [level[0][0] for level in levels]
    chances = [level[0][1] for level in levels]
    tree = grown(levels)
    assert len(tree) == NODES
    sequence = CachedSequence(0, CONTEXT)
    rows = Rows(0, (1,), tree)
    work = Work.of(sequence, rows)
    span = Span(work, 0, len(work.tokens))
    found = {
        "grow": median_us(lambda: grown(levels)),
        "best_first": median_us(lambda: best_first(tokens, chances, NODES)),
        "depths": median_us(lambda: depths(tree)),
        "ancestors": median_us(lambda: ancestors(tree)),
        "row_paths": median_us(lambda: row_paths(tree)),
        "work": median_us(lambda: Work.of(sequence, rows)),
        "padded": median_us(lambda: pad(span)),
        "compiled": median_us(lambda: _Table([span])),
        "walk": median_us(lambda: verify_match(Walker(tree), tree)),
    }
    shared = sum(found[name] for name in ("grow", "row_paths", "work", "walk"))
    rounds = {
        "eager_round": round(shared + found["padded"], 1),
        "compiled_round": round(shared + found["compiled"], 1),
    }
    print(json.dumps({"nodes": NODES, **found, **rounds}))


if __name__ == "__main__":
    main()
