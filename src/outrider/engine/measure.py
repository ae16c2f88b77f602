"""What a pass of the target costs: timed over rows, batch and context, on random tokens.

Machines are shared and their clocks drift, so the shapes take turns, round after round, and what
counts of each is its fastest pass: what else runs on a machine only ever adds time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from outrider.targets.base import Rows, Target
from outrider.types import DraftTree

Clock: TypeAlias = Callable[[], float]
Progress: TypeAlias = Callable[[str], None]

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
LONG_ROWS = (1, 2, 4, 8, 16, 32)
BATCH_ROWS = (1, 2, 4, 8, 16, 32)
MOST_BATCH_ROWS = 64
BATCHES = (2, 4, 8)
SHORT_CONTEXT, LONG_CONTEXT = 64, 1024
GLANCED_ROWS = (1, 2, 4, 8)

_ROUNDS = 8  # the first of which allocates, compiles and proves
_OPENING = 0.1  # of the time, for reading the long context, and as much for a batch's contexts
_LEAST_LONG = 128
_GLANCES = 4


@dataclass(frozen=True, slots=True)
class PassPoint:
    """The time of one shape of pass: `batch` sequences of `rows` rows after `context` tokens."""

    batch: int
    rows: int
    context: int
    seconds: float
    computed: int
    """Rows the model works on in all, padding included."""

    @property
    def attended(self) -> int:
        """Context tokens looked at, summed over all rows, those of padding as well."""
        return self.computed * self.context


@dataclass(slots=True)
class _Shape:
    """A pass that is run again and again, and what it took."""

    context: int
    work: list[Rows]
    taken: list[float] = field(default_factory=list)

    def point(self, target: Target) -> PassPoint:
        """Return what the shape costs."""
        counts = [1 + len(part.tree) for part in self.work]
        return PassPoint(
            batch=len(counts),
            rows=counts[0],
            context=self.context,
            seconds=min(self.taken),
            computed=target.pass_rows(counts),
        )


def measure_passes(
    target: Target,
    *,
    max_batch: int = 8,
    seconds: float = 30.0,
    clock: Clock = time.perf_counter,
    progress: Progress = lambda _: None,
) -> tuple[PassPoint, ...]:
    """Time passes of the target for about `seconds`; a pass over one row is always among them.

    A model too slow to try all shapes in that time leaves out those of many sequences, then those
    of a long context. The sequences opened for it are closed again, whatever happens.
    """
    deadline = clock() + seconds
    random = Random(0)
    with ExitStack() as stack:
        texts = _Texts(target, random, stack)
        shapes = _lay_out(texts, max_batch, _OPENING * seconds, clock)
        for turn, shape in itertools.product(range(_ROUNDS), shapes):
            if clock() >= deadline and shapes[0].taken:
                break
            if shape is shapes[0]:
                progress(f"measuring passes, round {turn + 1} of {_ROUNDS}")
            shape.taken.append(_run(target, shape.work, clock))
    return tuple(shape.point(target) for shape in shapes if shape.taken)


def glance(
    target: Target, *, seconds: float = 0.4, clock: Clock = time.perf_counter
) -> tuple[PassPoint, ...]:
    """Time a few passes of one sequence, in a fraction of a second, where nothing is known.

    What it tells is rough, and enough not to begin with drafts that cannot pay. A model too slow
    for it gives no points.
    """
    deadline = clock() + seconds
    with ExitStack() as stack:
        texts = _Texts(target, Random(0), stack)
        room = min(GLANCED_ROWS[-1], target.max_positions - 1)
        sequence = texts.open(1, room)
        work = [texts.rows(sequence, rows) for rows in GLANCED_ROWS if rows <= room]
        shapes = [_Shape(1, [part]) for part in work]
        for turn, shape in itertools.product(range(_GLANCES), shapes):
            if clock() >= deadline:
                break
            taken = _run(target, shape.work, clock)
            if turn:  # the first allocates
                shape.taken.append(taken)
    return tuple(shape.point(target) for shape in shapes if shape.taken)


class _Texts:
    """Opens sequences with random tokens in the cache."""

    def __init__(self, target: Target, random: Random, stack: ExitStack) -> None:
        self.target = target
        self._random = random
        self._stack = stack

    def open(self, context: int, room: int) -> int:
        """Return a sequence with `context` tokens cached, and room for so many more."""
        sequence = self.target.open_trial(context + room)
        self._stack.callback(self.target.close, sequence)
        self.target.score([Rows(sequence, self.tokens(context))])
        self.target.commit(sequence, ())
        return sequence

    def rows(self, sequence: int, count: int) -> Rows:
        """Return a draft of `count` rows, its root included."""
        root, *draft = self.tokens(count)
        return Rows(sequence, (root,), DraftTree.chain(draft))

    def tokens(self, count: int) -> tuple[int, ...]:
        """Draw tokens evenly."""
        return tuple(self._random.randrange(self.target.vocab_size) for _ in range(count))


def _lay_out(texts: _Texts, max_batch: int, opening: float, clock: Clock) -> list[_Shape]:
    """Return the shapes to time, the most important first."""
    positions = texts.target.max_positions
    short = max(1, min(SHORT_CONTEXT, positions // 4))
    room = min(ROWS[-1], positions - short)
    started = clock()
    first = texts.open(short, room)
    reading = (clock() - started) / short
    affordable = int(opening / reading) if reading > 0 else LONG_CONTEXT
    batches = [batch for batch in BATCHES if batch <= max_batch and batch * short <= affordable]
    # Neighbours in the cache, so that a batch of them is one pass.
    handles = [first, *(texts.open(short, room) for _ in range(max([1, *batches]) - 1))]
    shapes = [_Shape(short, [texts.rows(first, rows)]) for rows in ROWS if rows <= room]
    long = min(LONG_CONTEXT, positions - room, affordable)
    if long >= _LEAST_LONG:
        sequence = texts.open(long, room)
        shapes += [_Shape(long, [texts.rows(sequence, n)]) for n in LONG_ROWS if n <= room]
    for batch in batches:
        for rows in BATCH_ROWS:
            if rows <= room and batch * rows <= MOST_BATCH_ROWS:
                work = [texts.rows(handle, rows) for handle in handles[:batch]]
                shapes.append(_Shape(short, work))
    return shapes


def _run(target: Target, work: Sequence[Rows], clock: Clock) -> float:
    started = clock()
    scored = target.score(work)
    # The engine reads the logits on the host: a pass is not over before they are there.
    scored.logits[-1][-1, 0].item()
    taken = clock() - started
    for part in work:
        target.crop(part.sequence, target.cached(part.sequence))
    return taken
