"""Passes replayed as CUDA graphs: the host launches one thing a pass instead of thousands.

Passes of few rows come in a small set of shapes, each recorded when it is first needed. Long
prompts, where the device has enough to do, run eagerly. On a CPU the same shapes run unrecorded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.targets.attention import AttentionSwitch
from outrider.targets.cache import KVCache
from outrider.targets.eager import EagerPasses
from outrider.targets.features import FeatureTap, side_by_side
from outrider.targets.passes import Passes
from outrider.targets.static import MOST_WIDE, Compute, PassShape, StaticPass, compute_logits
from outrider.targets.work import Span, Work, adjacent

_LOGGER = logging.getLogger("outrider")
_LEAST_KEYS = 256
_MOST_ROWS = 512  # rows of a whole pass: with more of them launches no longer matter
_MOST_GRAPHS = 256

Run = Callable[[], list[Tensor]]
"""Computes the logits [B, W, V] of the rows that were loaded last, and states of layers."""
Record = Callable[[Run], Run]
"""Turns a run into one that does the same to the same tensors; what it returns is overwritten."""


def can_be_graphed(model: PreTrainedModel) -> bool:
    """Whether all of a model is on one CUDA device: weights fetched from elsewhere are not."""
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    return len(devices) == 1 and devices.pop().type == "cuda"


class GraphedPasses(Passes):
    """Runs up to 32 rows a sequence in recorded shapes, anything longer eagerly.

    Widths and numbers of sequences are powers of two, and so are the keys that are read, as far
    as the cache has so many. A shape that cannot be recorded ends recording for good: everything
    runs eagerly from then on, and one log line says why. Numerics are "fast".
    """

    def __init__(
        self,
        model: PreTrainedModel,
        cache: KVCache,
        device: torch.device,
        *,
        fuse: bool = False,
        recorder: Callable[[], Record] | None = None,
    ) -> None:
        """`fuse` lets a compiler join small operations, which takes a minute or so four times: for
        one row and for more, of one sequence and of more; if it fails, they stay apart.

        `recorder` is asked for what makes recordings, and again when all of them are dropped.
        Without one CUDA graphs are made on a GPU, and no recordings elsewhere.
        """
        super().__init__(device)
        self._model = model
        self._cache = cache
        self._switch = AttentionSwitch(model)
        self._eager = EagerPasses(model, cache, device)
        self._compute = _fused() if fuse else compute_logits
        self._recorder = _own_recorder(device) if recorder is None else recorder
        self._record = self._recorder()
        self._ready: dict[PassShape, _Ready] = {}
        self._keys: Tensor | None = None  # a layer of the cache as it was recorded
        self._tap: FeatureTap | None = None
        self.is_graphed = True
        """False once a recording has failed."""

    def prepare(self, layers: Sequence[int]) -> None:
        """Let all passes from now on take the states of these layers, and of those before."""
        known = () if self._tap is None else self._tap.layers
        wanted = tuple(dict.fromkeys((*known, *layers)))
        if wanted != known:
            self._forget()
            self._tap = FeatureTap(self._model, wanted)

    def run(self, works: Sequence[Work], layers: Sequence[int] = ()) -> None:
        """Short works in recorded shapes, those of neighbouring slots together; the rest eagerly.

        So is the very first pass, from which the cache learns its layers.
        """
        short = [work for work in works if self._is_short(work)]
        self.prepare(layers)
        self._run_eagerly([work for work in works if not self._is_short(work)], layers)
        spans = [Span(work, 0, len(work.tokens)) for work in short]
        for run in adjacent(spans):
            group = [short[i] for i in run]
            found = self._pass(group, max(len(work.tokens) for work in group))
            if found is None:
                self._run_eagerly(group, layers)
                continue
            for work, (logits, *states) in zip(group, found, strict=True):
                work.logits.append(logits[work.first_wanted : len(work.tokens)])
                if layers:
                    known = self._tap.layers if self._tap is not None else ()
                    wanted = [states[known.index(layer)] for layer in layers]
                    work.features.append(side_by_side(wanted)[: len(work.tokens)])

    def shaped(self, works: Sequence[Work], rows: int) -> list[Tensor]:
        found = self._pass(works, rows) if self._is_short(works[0]) else None
        return self._eager.shaped(works, rows) if found is None else [part[0] for part in found]

    def rows(self, counts: Sequence[int]) -> int:
        width = max(counts)
        if not self._has_shape(len(counts), width):
            return self._eager.rows(counts)
        return _power_of_two(len(counts)) * _power_of_two(width)

    def _is_short(self, work: Work) -> bool:
        known = bool(self._cache.tensors)
        return self.is_graphed and known and len(work.tokens) <= MOST_WIDE

    def _has_shape(self, count: int, width: int) -> bool:
        rows = _power_of_two(count) * _power_of_two(width)
        return self.is_graphed and width <= MOST_WIDE and rows <= _MOST_ROWS

    def _run_eagerly(self, works: Sequence[Work], layers: Sequence[int]) -> None:
        if works:
            self._eager.seconds = 0.0
            self._eager.run(works, layers)
            self.seconds += self._eager.seconds

    def _pass(self, works: Sequence[Work], width: int) -> list[list[Tensor]] | None:
        """Run works of neighbouring slots; return each one's logits [W, V] and states, or None."""
        if not self._has_shape(len(works), width):
            return None
        ordered = sorted(works, key=lambda work: work.sequence.slot)
        end = max(work.sequence.cached + len(work.tokens) for work in works)
        batch = _power_of_two(len(works))
        num_slots, tokens = self._make_room(batch, end)
        shape = PassShape(
            first=min(ordered[0].sequence.slot, num_slots - batch),
            batch=batch,
            width=_power_of_two(width),
            bucket=min(max(_LEAST_KEYS, _power_of_two(end)), tokens),
        )
        while shape not in self._ready:
            if not self.is_graphed:
                return None
            self._prepare(shape, ordered, tokens - 1)
        ready = self._ready[shape]
        with self.timed():
            ready.step.inputs.load(ordered, tokens - 1)
            # The next run writes over what this one returns.
            outputs = [output.clone() for output in ready.run()]
        self._touch(ordered, tokens)
        slots = [work.sequence.slot - shape.first for work in works]
        return [[output[slot] for output in outputs] for slot in slots]

    def _make_room(self, slots: int, end: int) -> tuple[int, int]:
        """Keep more tokens than any sequence uses; returns the slots and tokens there are.

        A cache that others have made larger is another cache, which the recordings do not know. It
        gets its spare token at once, and not when a sequence that fills it comes to its end.
        """
        self._cache.reserve(slots, end + 1)
        keys = self._cache.tensors[0]
        if keys is not self._keys:
            if self._keys is None or keys.shape[2] != self._keys.shape[2]:
                self._cache.reserve(0, keys.shape[2] + 1)
            self._forget()
            self._keys = self._cache.tensors[0]
        return self._keys.shape[0], self._keys.shape[2]

    def _prepare(self, shape: PassShape, works: Sequence[Work], scratch: int) -> None:
        """Record a shape with these works, or give up a little more."""
        step = StaticPass(
            self._model, self._switch, self._cache, shape, self._device, self._compute, self._tap
        )
        step.inputs.load(works, scratch)
        try:
            run = self._record(step.forward)
        except Exception as error:  # noqa: BLE001  what is truly wrong raises again eagerly
            self._give_up(error)
            return
        if len(self._ready) >= _MOST_GRAPHS:
            self._ready.pop(next(iter(self._ready)))
        self._ready[shape] = _Ready(step, run)

    def _give_up(self, error: Exception) -> None:
        """Go on without the compiler if there is one, else without recordings."""
        name = type(self._model).__name__
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        if self._compute is not compute_logits:
            _LOGGER.warning("passes are not fused: %s cannot be compiled: %s", name, reason)
            self._compute = compute_logits
            return
        _LOGGER.warning("passes run eagerly: %s cannot be graphed: %s", name, reason)
        self.is_graphed = False
        self._forget()
        self._keys = None

    def _forget(self) -> None:
        self._ready.clear()
        # Memory that recordings shared is given back with the last of them.
        self._record = self._recorder()

    def _touch(self, works: Sequence[Work], tokens: int) -> None:
        for work in works:
            sequence = work.sequence
            self._cache.touch(sequence.slot, sequence.cached + len(work.tokens))
        self._cache.touch(works[0].sequence.slot, tokens)


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    """A shape, and what runs it."""

    step: StaticPass
    run: Run


def _power_of_two(count: int) -> int:
    """Return the least power of two that is no less."""
    return 1 << (count - 1).bit_length()


def _fused() -> Compute:
    # Lengths stay open, so that all widths, batches and key buckets share what was compiled.
    fused: Compute = torch.compile(compute_logits, dynamic=True)
    return fused


def _own_recorder(device: torch.device) -> Callable[[], Record]:
    return (lambda: CudaRecorder(device)) if device.type == "cuda" else (lambda: _as_it_is)


def _as_it_is(run: Run) -> Run:
    return run


class CudaRecorder:
    """Records runs as CUDA graphs that share one pool of memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, run: Run) -> Run:
        """Run twice for what libraries set up on first use, then record; raises RuntimeError."""
        with torch.cuda.device(self._device):
            stream = torch.cuda.current_stream()
            try:
                return self._recorded(run, stream)
            finally:
                # A recording that fails leaves its own stream behind as the current one.
                torch.cuda.set_stream(stream)

    def _recorded(self, run: Run, stream: torch.cuda.Stream) -> Run:
        self._stream.wait_stream(stream)
        with torch.cuda.stream(self._stream):
            for _ in range(2):
                run()
        stream.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device in the meantime.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
        ):
            outputs = run()

        def replay() -> list[Tensor]:
            graph.replay()
            return outputs

        return replay
