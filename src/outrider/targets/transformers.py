"""A Transformers decoder as a target: one pass scores the drafts of many sequences.

How rows get through the model is the business of its passes: eager or compiled, and under
`numerics="invariant"` such that a row's bits do not depend on what else is in the pass.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import torch
from transformers import PreTrainedModel

from outrider.errors import CompilerError, OptionError, UnsupportedModelError
from outrider.targets.agreement import difference, most_difference
from outrider.targets.base import Rows, ScoredRows
from outrider.targets.blocks import Blocks
from outrider.targets.cache import KVCache
from outrider.targets.capabilities import require_supported
from outrider.targets.compiled import CompiledPasses
from outrider.targets.context import usable_positions
from outrider.targets.eager import EagerPasses, FixedPasses
from outrider.targets.early_exit import EarlyExit, require_same_rows
from outrider.targets.features import FeatureTap, decoder_layers
from outrider.targets.free_memory import available_memory
from outrider.targets.gguf import GgufFile
from outrider.targets.graph import Pass, compiled_pass, find_pass
from outrider.targets.graphed import GraphedPasses, can_be_graphed
from outrider.targets.layer_range import LayerRange
from outrider.targets.memory import plan_memory, require_fits
from outrider.targets.offload import execution_device
from outrider.targets.paging import page_out, trim
from outrider.targets.passes import Passes
from outrider.targets.quantization import is_int8
from outrider.targets.shapes import ShapedTarget, same_bits
from outrider.targets.work import CachedSequence, Work
from outrider.types import DraftTree, Numerics

_LOGGER = logging.getLogger("outrider")

_SPARE_SHARE = 8
"""Of the memory that is free, one part in so many may go to slots not asked for yet."""

_TRIED_SHAPES = ((1, 1), (1, 4), (2, 1), (2, 4), (2, 8))
"""Sequences, and rows of each, in which a compiled pass must give a row the bits it has alone:
plain decoding of one and of a batch, and drafts of both."""


class TransformersTarget(ShapedTarget):
    """Drives any causal language model whose attention goes through Transformers' interface.

    The model is never changed: its own attention is back in place after each pass. Before any
    work a short probe compares a pass with the model's own answer, and a model that cannot be
    driven faithfully is refused (`UnsupportedModelError`).
    """

    scores_prompts = True
    is_encoder_decoder = False

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        numerics: Numerics = "fast",
        compile: bool | None = False,
        gguf: GgufFile | None = None,
    ) -> None:
        """`compile`: True compiles the passes if need be, and stays eager, with a line that says
        so, where that cannot be done; None uses what was compiled before, if anything was.
        `gguf`: the file whose blocks stand for the model's very weights; compiled passes read them.
        """
        name = type(model).__name__
        require_supported(model.config, name=name, model_class=type(model))
        if model.config.is_encoder_decoder != self.is_encoder_decoder:
            kind = "an" if model.config.is_encoder_decoder else "no"
            raise UnsupportedModelError(f"{name} is {kind} encoder-decoder model")
        if numerics == "invariant" and _has_experts(model):
            raise UnsupportedModelError(
                f"{name} routes rows to experts, so the shape of its passes depends on all rows: "
                "numerics='invariant' cannot hold, use 'fast'"
            )
        if model.training:
            raise UnsupportedModelError("the model is in training mode: call model.eval() first")
        self.model = model
        self.numerics = numerics
        self.device = execution_device(model)
        self.max_positions = usable_positions(model.config)
        self._cache = KVCache()
        self._sequences: dict[int, CachedSequence] = {}
        self._next_handle = 0
        self._passes: Passes = self._eager_passes()
        self._probe()
        self._must_compile = compile is True
        self._gguf = gguf
        self._blocks: Mapping[str, Blocks] | None = None
        self.is_compiled = compile is not False and self._use_compiled(must=self._must_compile)
        self.preferred_rows = self._passes.preferred_rows
        trim()  # of what reading weights and trying passes out took

    def _eager_passes(self) -> Passes:
        if self.numerics == "invariant":
            return FixedPasses(self.model, self._cache, self.device, self)
        return EagerPasses(self.model, self._cache, self.device)

    def _use_compiled(self, *, must: bool) -> bool:
        """Change over to compiled passes: made now if they `must` be, else only if they exist."""
        if self.device.type == "cuda":
            return self._use_graphs(fuse=must)
        try:
            run = self._compiled_pass(must)
        except CompilerError as error:
            _LOGGER.warning("passes run eagerly: %s", error)
            return False
        if run is None:
            return False
        eager, few_rows = self._passes, self.numerics == "invariant"
        is_packed = is_int8(self.model)
        self._passes = CompiledPasses(
            run, self._cache, self.device, few_rows=few_rows, is_packed=is_packed
        )
        self._probe()
        if few_rows and not all(same_bits(self, *shape) for shape in _TRIED_SHAPES):
            _LOGGER.warning("passes run eagerly: compiled ones change the bits of rows here")
            self._passes = eager
        elif self._blocks:
            # Trying the passes out has read them all; from here on their blocks are read.
            weights = dict(self.model.named_parameters(remove_duplicate=False))
            page_out(weights[name] for name in self._blocks)
        return self._passes is not eager

    def _use_graphs(self, *, fuse: bool) -> bool:
        """Change over to CUDA graphs, fused by the compiler first if that was asked for."""
        if self.numerics == "invariant" or not can_be_graphed(self.model):
            if fuse:
                _LOGGER.warning("passes run eagerly: invariant ones and some models have no graphs")
            return False
        eager = self._passes
        self._passes = graphed = GraphedPasses(self.model, self._cache, self.device, fuse=fuse)
        try:
            self._probe()
        except UnsupportedModelError as error:
            _LOGGER.warning("passes run eagerly: %s", error)
            self._passes = eager
        return self._passes is graphed and graphed.is_graphed

    @property
    def reads_blocks(self) -> bool:
        """Whether passes read weights as the blocks of a GGUF file."""
        return self.is_compiled and bool(self._blocks)

    @property
    def cache_bytes(self) -> int:
        """Bytes the cache of all sequences holds."""
        return self._cache.num_bytes

    # -- its first layers alone -----------------------------------------------------------------

    def exit_at(self, layer: int) -> EarlyExit:
        """Return the first `layer` layers, with the final norm and the head, as a drafter's model.

        Raises OptionError for a layer that leaves none before it or none behind, and
        UnsupportedModelError for a model whose layers cannot be run apart.
        """
        count, name = len(decoder_layers(self.model)), type(self.model).__name__
        if not 1 <= layer < count:
            raise OptionError(
                f"early exit at layer {layer}: {name} has {count} layers, so it must be from 1 to "
                f"{count - 1}"
            )
        parts = [LayerRange(self.model, *ends) for ends in ((0, layer), (layer, count))]
        shallow, deep = self._part_passes(parts)
        early = EarlyExit(layer, shallow, deep, self._sequences, self.max_positions)
        require_same_rows(self, early, name, bits=self.numerics == "invariant")
        return early

    def _part_passes(self, parts: Sequence[LayerRange]) -> list[Passes]:
        """Return passes over parts of the model, compiled if its own are."""
        if isinstance(self._passes, EagerPasses):
            return [self._passes.over(part) for part in parts]
        if isinstance(self._passes, CompiledPasses):
            compiled = self._compiled_parts(self._passes, parts)
            if compiled is not None:
                return compiled
        return [EagerPasses(self.model, self._cache, self.device, part=part) for part in parts]

    def _compiled_parts(
        self, whole: CompiledPasses, parts: Sequence[LayerRange]
    ) -> list[Passes] | None:
        reason = "they are not compiled; compile=True compiles them"
        try:
            found = [self._compiled_pass(self._must_compile, part) for part in parts]
        except CompilerError as error:
            found, reason = [], str(error)
        runs = [run for run in found if run is not None]
        if len(runs) == len(parts):
            return [whole.over(run) for run in runs]
        ends = " and ".join(map(str, parts))
        if self.numerics == "invariant":
            raise UnsupportedModelError(
                f"passes over {ends} must be compiled where the whole ones are, to give a row the "
                f"same bits: {reason}"
            )
        _LOGGER.warning("passes over %s run eagerly: %s", ends, reason)
        return None

    def _compiled_pass(self, must: bool, part: LayerRange | None = None) -> Pass | None:
        """Return a compiled pass: made now if it `must` be, else only if it exists."""
        if self._blocks is None:
            found = self._gguf and self._gguf.blocks(make=must)
            self._blocks = found or {}
        if must:
            return compiled_pass(self.model, self._blocks, self._cache, part)
        return find_pass(self.model, self._blocks, part)

    # -- the contract ---------------------------------------------------------------------------

    def require_room(self, sequences: int, tokens: int, rows: int, input_tokens: int = 0) -> None:
        wanted, tokens = len(self._sequences) + sequences, self._passes.stored(tokens)
        input_bytes = self._input_bytes(wanted, input_tokens)
        if self._cache.holds(wanted, tokens) and not input_bytes:
            return
        slots, length = self._cache.size_for(wanted, tokens)
        plan = plan_memory(
            self.model,
            sequences=slots,
            tokens=length,
            rows=rows,
            kv_bytes_per_token=self._cache.bytes_per_token,
            held=self._cache.num_bytes,
            inputs=input_bytes,
        )
        require_fits(plan)

    def _input_bytes(self, sequences: int, input_tokens: int) -> int:
        """Return the bytes that inputs still need; a decoder-only model has none."""
        return 0

    def open(self, max_tokens: int) -> int:
        handle = self._next_handle
        self._next_handle += 1
        slot, tokens = len(self._sequences), self._passes.stored(max_tokens)
        spare = 0
        if not self._cache.holds(slot + 1, tokens):
            spare = available_memory(self.device) // _SPARE_SHARE
        self._cache.reserve(slot + 1, tokens, spare_bytes=spare)
        self._cache.clear(slot)
        self._sequences[handle] = CachedSequence(slot)
        return handle

    def cached(self, sequence: int) -> int:
        return self._sequences[sequence].cached

    def crop(self, sequence: int, length: int) -> None:
        state = self._sequences[sequence]
        if not 0 <= length <= state.cached:
            raise ValueError(f"cannot crop {state.cached} cached tokens to {length}")
        state.cached = length
        state.staged = state.held = None

    def close(self, sequence: int) -> None:
        closed = self._sequences.pop(sequence)
        # Slots stay dense, so that a pass over all sequences reads the cache without a copy.
        last = len(self._sequences)
        for state in self._sequences.values():
            if state.slot == last and closed.slot != last:
                # Rows that were scored are not committed yet, and still may be.
                self._cache.move(last, closed.slot, state.cached + sum(state.staged or ()))
                state.slot = closed.slot
                state.held = None

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        state = self._sequences[sequence]
        if state.staged is None:
            raise ValueError(f"sequence {sequence} has no scored rows to commit")
        num_pending, num_nodes = state.staged
        if any(not 0 <= node < num_nodes for node in path):
            raise ValueError(f"path {list(path)} leaves the {num_nodes} nodes that were scored")
        self._cache.compact(state.slot, state.cached + num_pending, path)
        state.cached += num_pending + len(path)
        state.staged = state.held = None

    def pass_rows(self, counts: Sequence[int]) -> int:
        return self._passes.rows(counts)

    def prepare(self, layers: Sequence[int]) -> None:
        if layers:
            FeatureTap(self.model, layers)  # refuses what cannot be had
            self._passes.prepare(layers)

    def score(self, rows: Sequence[Rows], layers: Sequence[int] = ()) -> ScoredRows:
        works = [Work.of(self._sequences[part.sequence], part) for part in rows]
        held = [work.sequence.let_go() for work in works]
        early = next((part.by for part in held if part is not None), None)
        with torch.inference_mode():
            # Held rows are short of the states of most layers: who asks for such gets a whole pass.
            if early is None or layers:
                self._passes.seconds = 0.0
                self._passes.run(works, layers)
                seconds = self._passes.seconds
            else:
                seconds = early.run(works, held)
        self._stage(works)
        logits = tuple(_joined(work.logits) for work in works)
        features = tuple(_joined(work.features) for work in works) if layers else ()
        return ScoredRows(logits, seconds, features)

    def score_shaped(self, rows: Sequence[Rows], width: int) -> list[torch.Tensor]:
        works = [Work.of(self._sequences[part.sequence], part) for part in rows]
        with torch.inference_mode():
            found = self._passes.shaped(works, width)
        self._stage(works)
        return found

    def _stage(self, works: Sequence[Work]) -> None:
        for work in works:
            work.sequence.staged = (work.num_pending, len(work.depths))

    # -- the probe ------------------------------------------------------------------------------

    @torch.inference_mode()
    def _probe(self) -> None:
        """Compare a pass with the model's own answer, and learn the width of its logits."""
        name = type(self.model).__name__
        tokens = [token % self.model.config.get_text_config().vocab_size for token in range(5, 12)]
        sequence = self.open_trial(len(tokens))
        try:
            expected = self._own_logits(torch.tensor([tokens], device=self.device))[0, 3:]
            self.vocab_size = int(expected.shape[-1])
            self.score([Rows(sequence, tuple(tokens[:3]))])
            self.commit(sequence, ())
            rows = Rows(sequence, (tokens[3],), DraftTree.chain(tokens[4:]))
            (found,) = self.score([rows]).logits
        except (TypeError, ValueError, RuntimeError, KeyError, AttributeError) as error:
            raise UnsupportedModelError(f"{name} cannot be driven: {error}") from error
        finally:
            self.close(sequence)
        # Not a number is no agreement either.
        apart = difference(found, expected)
        if not apart <= most_difference(expected.dtype):
            raise UnsupportedModelError(
                f"{name} gives other logits through outrider's cache than by itself "
                f"(relative difference {apart:.1e}): its attention has a feature not known"
            )

    def _own_logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return what the model says by itself [1, tokens, V] after each of some tokens."""
        logits: torch.Tensor = self.model(input_ids=tokens, use_cache=False).logits
        return logits


def _joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _has_experts(model: PreTrainedModel) -> bool:
    config = model.config.get_text_config(decoder=True)
    return any(getattr(config, name, None) for name in ("num_experts", "num_local_experts"))
