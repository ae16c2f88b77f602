"""Recorded passes of fixed shapes: what they say is what eager passes say."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from outrider.engine.engine import Engine
from outrider.errors import UnsupportedModelError
from outrider.targets.base import Rows
from outrider.targets.graphed import GraphedPasses, can_be_graphed
from outrider.targets.transformers import TransformersTarget
from outrider.types import DraftTree
from support.recording import Recorder
from support.runs import collect, draft_model, make_request
from support.tiny import ARCHITECTURES, random_ids, shared_model, tiny_model

TREE = DraftTree(tokens=(7, 9, 7, 3, 4, 9), parents=(-1, -1, 0, 1, 2, 2))
WIDE = DraftTree(tokens=(1, 2, 3, 4, 5, 6, 7), parents=(-1, 0, 1, -1, 0, 3, 5))
CHAIN = DraftTree.chain((3, 5, 8))
NONE = DraftTree()
# Its last node is stored far behind nodes that are out of its window.
DEEP = DraftTree(tokens=tuple(range(20)), parents=(*[-1] * 10, *range(9, 19)))

WAITING = ("mixtral", "qwen3_moe")
"""Architectures whose eager code asks the device what to do next."""

Record = Callable[[Callable[[], list[Tensor]]], Callable[[], list[Tensor]]]


def graphed(
    model: Any, record: Record | None = None, *, fuse: bool = False
) -> tuple[TransformersTarget, GraphedPasses]:
    """Return a target whose passes are of fixed shapes, recorded if there is a recorder."""
    target = TransformersTarget(model)
    recorder = None if record is None else lambda: record
    passes = GraphedPasses(model, target._cache, target.device, fuse=fuse, recorder=recorder)
    target._passes = passes
    target._probe()
    return target, passes


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert found.isfinite().all()
    # Gemma's own attention rounds its weights to float32, even in a float64 model.
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


Part = tuple[tuple[int, ...], DraftTree, tuple[int, ...]]
"""What a sequence has pending, its draft, and the path of it that is kept."""


class Pair:
    """The same sequences in an eager target and in one of fixed shapes."""

    def __init__(
        self,
        model: Any,
        lengths: tuple[int, ...],
        *,
        recorder: Recorder | None = None,
        max_tokens: int = 128,
    ) -> None:
        self.eager = TransformersTarget(model)
        self.fixed, self.passes = graphed(model, recorder)
        self.handles: tuple[list[int], list[int]] = ([], [])
        for _ in lengths:
            self.open(max_tokens)
        for index, length in enumerate(lengths):
            if length:
                self.check({index: (random_ids(length, index), DraftTree(), ())})

    def open(self, max_tokens: int) -> None:
        for target, handles in zip((self.eager, self.fixed), self.handles, strict=True):
            handles.append(target.open(max_tokens))

    def score(self, parts: Mapping[int, Part]) -> None:
        """Compare all logits of some sequences."""
        expected, found = (
            target.score([Rows(handles[i], part[0], part[1]) for i, part in parts.items()]).logits
            for target, handles in zip((self.eager, self.fixed), self.handles, strict=True)
        )
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)

    def commit(self, parts: Mapping[int, Part]) -> None:
        for target, handles in zip((self.eager, self.fixed), self.handles, strict=True):
            for i, part in parts.items():
                target.commit(handles[i], part[2])

    def check(self, parts: Mapping[int, Part]) -> None:
        self.score(parts)
        self.commit(parts)


@pytest.mark.parametrize(
    ("architecture", "recorded"),
    [(name, False) for name in ARCHITECTURES]
    + [(name, True) for name in ARCHITECTURES if name not in WAITING],
)
def test_rows_of_fixed_shapes_say_what_eager_rows_say(architecture: str, recorded: bool) -> None:
    pair = Pair(shared_model(architecture), (20,), recorder=Recorder() if recorded else None)
    pair.check({0: ((5,), CHAIN, (0, 1))})
    pair.check({0: ((6,), TREE, (0, 2, 5))})
    pair.check({0: ((1, 2, 3), TREE, (1, 3))})
    pair.check({0: ((8,), DraftTree(), ())})
    pair.check({0: ((9,), DraftTree.chain(random_ids(31, 7)), tuple(range(31)))})
    pair.check({0: ((4,), DEEP, (9, 10))})
    pair.check({0: ((4,), TREE, (1,))})
    assert pair.passes.is_graphed


@pytest.mark.parametrize("architecture", ["llama", "mistral", "gemma2", "gpt2"])
def test_a_recording_follows_its_tensors_whatever_shares_the_pass(architecture: str) -> None:
    recorder = Recorder()
    pair = Pair(shared_model(architecture), (5, 23, 1, 40), recorder=recorder)
    pair.check({0: ((1,), TREE, (1, 3)), 1: ((2,), CHAIN, (0,)), 2: ((3,), NONE, ())})
    made = recorder.count
    pair.check({1: ((4, 4), CHAIN, (0, 1, 2)), 2: ((5,), TREE, ()), 0: ((6,), WIDE, (3, 5, 6))})
    pair.check({2: ((7,), WIDE, (0, 1, 2)), 0: ((8,), NONE, ()), 1: ((9,), TREE, (0,))})
    assert recorder.count == made
    pair.check({3: ((2,), TREE, (1, 4)), 2: ((1,), CHAIN, ()), 1: ((3,), NONE, ())})
    pair.check({i: ((11,), WIDE, (i,)) for i in (0,)} | {3: ((4,), CHAIN, (0,))})


def test_what_fills_a_shape_up_leaves_other_sequences_as_they_were() -> None:
    """BATCH-2: neither the rows that others have staged nor what they committed is touched."""
    pair = Pair(shared_model(), (6, 7, 8, 9, 10))
    staged = {3: ((1,), WIDE, (3, 5)), 4: ((2,), TREE, (0, 2, 5))}
    pair.score(staged)
    layers = pair.fixed._cache.tensors
    before = [part[3:].clone() for part in layers]
    pair.check({0: ((3,), TREE, (0,)), 1: ((4,), NONE, ()), 2: ((5, 6), CHAIN, (0,))})
    for part, held in zip(layers, before, strict=True):
        assert torch.equal(part[3:], held)
    pair.commit(staged)
    pair.check({i: ((7,), TREE, ()) for i in (2, 3, 4)})
    pair.check({i: ((7,), TREE, ()) for i in range(5)})


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_what_fills_a_shape_up_holds_numbers(architecture: str, count: int) -> None:
    """A row that saw nothing would be no number, and spoil the token it is stored in."""
    target, _ = graphed(shared_model(architecture))
    handles = [target.open(64) for _ in range(4)]
    target.score([Rows(handles[i], random_ids(17), CHAIN) for i in range(count)])
    assert all(part.isfinite().all() for part in target._cache.tensors)


def test_a_sequence_that_fills_the_cache_keeps_all_its_tokens() -> None:
    model = tiny_model("llama", max_position_embeddings=1024)
    pair = Pair(model, (240, 500, 508), max_tokens=512)
    for _ in range(4):
        pair.check({i: ((3,), CHAIN, (0, 1)) for i in range(2)})
    pair.check({2: ((4,), CHAIN, (0, 1, 2))})
    pair.check({i: ((4,), NONE, ()) for i in range(3)})
    full = pair.fixed._cache.tensors[0].shape[2]
    pair.open(full)
    pair.check({3: (random_ids(full - 3), NONE, ())})
    pair.check({3: ((4, 5, 6), NONE, ())})


def test_what_an_earlier_sequence_left_in_the_spare_token_is_wiped() -> None:
    """A number that is none, however it got there, must not outlive its sequence."""
    target, _ = graphed(shared_model())
    sequence = target.open(64)
    target.score([Rows(sequence, (1, 2, 3))])
    with torch.inference_mode():
        for part in target._cache.tensors:
            part[0, :, -1] = float("nan")
    target.close(sequence)
    target.open(64)
    assert all(part.isfinite().all() for part in target._cache.tensors)


def test_the_next_pass_does_not_overwrite_what_one_has_returned() -> None:
    target, _ = graphed(shared_model(), Recorder())
    sequence = target.open(64)
    (first,) = target.score([Rows(sequence, (1, 2, 3))]).logits
    held = first.clone()
    target.score([Rows(sequence, (4, 5, 6))])
    assert torch.equal(first, held)


def test_recordings_are_made_once_a_shape_and_again_when_the_cache_has_moved() -> None:
    recorder = Recorder()
    target, _ = graphed(shared_model(), recorder)
    first = target.open(100)
    target.score([Rows(first, random_ids(40))])
    target.commit(first, ())
    before = recorder.count
    for count in (3, 8, 4, 1, 6, 1):
        target.score([Rows(first, (1,), DraftTree.chain(random_ids(count - 1)))])
    assert recorder.count == before + 2  # the probe has made the one of four rows
    target.open(2000)
    (found,) = target.score([Rows(first, (1,), CHAIN)]).logits
    assert recorder.count == before + 3
    expected = Pair(shared_model(), (0,))
    expected.check({0: (random_ids(40), NONE, ())})
    (row,) = expected.eager.score([Rows(expected.handles[0][0], (1,), CHAIN)]).logits
    assert_close(found, row)


def test_slots_that_are_no_neighbours_take_a_pass_each() -> None:
    recorder = Recorder()
    pair = Pair(shared_model(), (5, 6, 7, 8, 9), recorder=recorder)
    before = recorder.count
    pair.check({i: ((2 + i,), TREE, (0,)) for i in (0, 1, 4)})
    assert recorder.count == before + 2


def test_more_rows_than_a_shape_has_run_eagerly() -> None:
    recorder = Recorder()
    pair = Pair(shared_model(), (9, 10), recorder=recorder)
    before = recorder.count
    long = DraftTree.chain(random_ids(40, 3))
    pair.check({0: ((1,), long, (0, 1, 2)), 1: (random_ids(33, 4), TREE, (1,))})
    assert recorder.count == before
    pair.check({0: ((1,), long, (0,)), 1: ((2,), TREE, (0, 2))})
    assert recorder.count == before + 1


def test_rows_are_counted_as_they_are_computed() -> None:
    _, passes = graphed(shared_model())
    assert passes.rows([1]) == 1
    assert passes.rows([3]) == 4
    assert passes.rows([1, 5, 2]) == 4 * 8
    assert passes.rows([40, 2]) == 80
    assert passes.rows([17] * 100) == 1700


def test_a_pass_that_cannot_be_recorded_is_eager_and_one_line_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def record(run: Callable[[], list[Tensor]]) -> Callable[[], list[Tensor]]:
        run()
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    model = shared_model()
    with caplog.at_level(logging.WARNING, logger="outrider"):
        target, passes = graphed(model, record)
        sequence = target.open(64)
        (found,) = target.score([Rows(sequence, (1, 2, 3), TREE)]).logits
    assert not passes.is_graphed
    assert [record.getMessage() for record in caplog.records] == [
        "passes run eagerly: LlamaForCausalLM cannot be graphed: "
        "operation not permitted when stream is capturing"
    ]
    eager = TransformersTarget(model)
    (expected,) = eager.score([Rows(eager.open(64), (1, 2, 3), TREE)]).logits
    assert torch.equal(found, expected)


def test_a_recording_that_says_something_else_is_refused_by_the_probe() -> None:
    def record(run: Callable[[], list[Tensor]]) -> Callable[[], list[Tensor]]:
        (logits,) = run()
        return lambda: [logits.flip(-1)]

    with pytest.raises(UnsupportedModelError, match="other logits"):
        graphed(shared_model(), record)


def test_the_shape_that_is_asked_for_is_the_shape_that_runs() -> None:
    recorder = Recorder()
    target, _ = graphed(shared_model(), recorder)
    handles = [target.open(32) for _ in range(2)]
    eager = TransformersTarget(shared_model())
    others = [eager.open(32) for _ in range(2)]
    before = recorder.count
    found = target.score_shaped([Rows(handles[i], (i, 3), CHAIN) for i in range(2)], 5)
    assert recorder.count == before + 1
    expected = eager.score_shaped([Rows(others[i], (i, 3), CHAIN) for i in range(2)], 5)
    for one, other in zip(found, expected, strict=True):
        assert_close(one[:5], other)


def test_time_in_the_model_is_counted_for_eager_and_recorded_passes_alike() -> None:
    target, passes = graphed(shared_model())
    handles = [target.open(64) for _ in range(2)]
    passes._eager.seconds = 1e6
    scored = target.score([Rows(handles[0], random_ids(40)), Rows(handles[1], (1, 2))])
    assert 0 < passes._eager.seconds < scored.seconds < 1e3


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A compiler that takes note of the functions it gets, and leaves them as they are."""
    made: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        made.append(len(inputs))
        return graph.forward

    whole = functools.partial(torch.compile, backend=backend, fullgraph=True)
    monkeypatch.setattr("torch.compile", whole)
    yield made
    torch.compiler.reset()


def test_fused_passes_say_what_eager_ones_say_and_are_compiled_four_times_at_most(
    compiled: list[int],
) -> None:
    model = tiny_model("gemma2", num_hidden_layers=1, max_position_embeddings=1024)
    pair = Pair(model, (20, 21, 300, 3))
    fixed = pair.fixed
    pair.passes = GraphedPasses(fixed.model, fixed._cache, fixed.device, fuse=True)
    fixed._passes = pair.passes
    for count in (1, 4, 2, 3):
        for tree in (NONE, TREE, CHAIN, NONE):
            pair.check({i: ((5,), tree, ()) for i in range(count)})
    pair.check({3: ((1,), NONE, ())})
    pair.check({2: ((1,), TREE, (1, 3))})
    assert len(compiled) == 4


def test_without_a_compiler_passes_are_not_fused_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_compiler(*arguments: Any) -> Tensor:
        raise RuntimeError("no compiler")

    monkeypatch.setattr("torch.compile", lambda function, dynamic: no_compiler)
    recorder = Recorder()
    with caplog.at_level(logging.WARNING, logger="outrider"):
        _, passes = graphed(shared_model(), recorder, fuse=True)
    assert passes.is_graphed and recorder.count == 2
    assert [record.getMessage() for record in caplog.records] == [
        "passes are not fused: LlamaForCausalLM cannot be compiled: no compiler"
    ]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_text_is_that_of_plain_decoding(temperature: float) -> None:
    target, passes = graphed(shared_model())
    requests = [
        make_request(random_ids(3 + 9 * i, i), max_new_tokens=24, temperature=temperature)
        for i in range(5)
    ]
    eager = TransformersTarget(shared_model())
    plain = collect(Engine(eager, max_draft=0, max_batch=3), requests)
    engine = Engine(target, draft_model("noisy"), max_draft=4, max_batch=3)
    for one, other in zip(collect(engine, requests), plain, strict=True):
        assert one.token_ids == other.token_ids
    assert passes.is_graphed


def test_a_model_on_a_cpu_is_not_for_cuda_graphs() -> None:
    assert not can_be_graphed(shared_model())
