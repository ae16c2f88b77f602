"""The Transformers target: what it scores is what the model itself says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.errors import OptionError, UnsupportedModelError
from outrider.targets.base import Rows
from outrider.targets.transformers import TransformersTarget
from outrider.trees.layout import row_paths
from outrider.types import DraftTree, Numerics
from support.scripted import ScriptedTarget
from support.tiny import ARCHITECTURES, VOCAB, random_ids, shared_model, tiny_model

# Gemma's own attention rounds its weights to float32, even in a float64 model.
_TOLERANCE = 1e-6

TREE = DraftTree(tokens=(7, 9, 7, 3, 4, 9), parents=(-1, -1, 0, 1, 2, 2))


def whole(model: PreTrainedModel, ids: tuple[int, ...]) -> Tensor:
    """Return the model's own logits after the last of the ids, without any cache."""
    with torch.inference_mode():
        logits: Tensor = model(input_ids=torch.tensor([ids]), use_cache=False).logits
    return logits[0, -1]


def assert_rows(
    model: PreTrainedModel, context: tuple[int, ...], tree: DraftTree, found: Tensor
) -> None:
    for path, row in zip(row_paths(tree), found, strict=True):
        expected = whole(model, context + path)
        torch.testing.assert_close(row, expected, rtol=_TOLERANCE, atol=_TOLERANCE)


def assert_same_bits_alone(
    target: TransformersTarget, sequence: int, tokens: tuple[int, ...], rows: Tensor
) -> None:
    """Score the tokens one by one and compare each with its row of a wider pass, bit for bit."""
    for row, token in zip(rows, tokens, strict=True):
        (alone,) = target.score([Rows(sequence, (token,))]).logits
        target.commit(sequence, ())
        assert torch.equal(alone[0], row)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_row_of_a_tree_is_what_the_model_says_after_its_own_path(architecture: str) -> None:
    model = shared_model(architecture)
    target = TransformersTarget(model)
    context = random_ids(20)
    sequence = target.open(64)
    (found,) = target.score([Rows(sequence, context, TREE)]).logits
    assert_rows(model, context, TREE, found)
    target.commit(sequence, (0, 2, 5))
    context += (7, 7, 9)
    assert target.cached(sequence) == len(context)
    (found,) = target.score([Rows(sequence, (5,), TREE)]).logits
    assert_rows(model, (*context, 5), TREE, found)


@pytest.mark.parametrize("architecture", ["llama", "mistral", "gemma2", "gpt2"])
def test_sequences_of_different_lengths_share_a_pass_without_touching_each_other(
    architecture: str,
) -> None:
    model = shared_model(architecture)
    target = TransformersTarget(model)
    contexts = [random_ids(5, 1), random_ids(23, 2), random_ids(1, 3)]
    trees = [TREE, DraftTree.chain((1, 2, 3)), DraftTree()]
    handles = [target.open(64) for _ in contexts]
    rows = [Rows(h, c, t) for h, c, t in zip(handles, contexts, trees, strict=True)]
    for _ in range(3):
        scored = target.score(rows)
        for context, tree, found in zip(contexts, trees, scored.logits, strict=True):
            assert_rows(model, context, tree, found)
        for handle, path in zip(handles, [(1, 3), (0,), ()], strict=True):
            target.commit(handle, path)
        contexts = [(*contexts[0], 9, 3, 8), (*contexts[1], 1, 40), (*contexts[2], 12)]
        rows = [Rows(h, (c[-1],), t) for h, c, t in zip(handles, contexts, trees, strict=True)]


def test_closing_a_sequence_leaves_the_others_as_they_were() -> None:
    model = shared_model()
    target = TransformersTarget(model)
    contexts = [random_ids(9, seed) for seed in range(3)]
    handles = [target.open(32) for _ in contexts]
    target.score([Rows(h, c) for h, c in zip(handles, contexts, strict=True)])
    for handle in handles:
        target.commit(handle, ())
    target.close(handles[0])
    rest = [Rows(h, (3,), TREE) for h in handles[1:]]
    for context, found in zip(contexts[1:], target.score(rest).logits, strict=True):
        assert_rows(model, (*context, 3), TREE, found)


def test_rows_come_back_in_the_order_they_were_asked_for() -> None:
    model = shared_model()
    target = TransformersTarget(model)
    contexts = [random_ids(4 + seed, seed) for seed in range(4)]
    handles = [target.open(32) for _ in contexts]
    pick = [3, 0, 2]
    scored = target.score([Rows(handles[i], contexts[i], TREE) for i in pick])
    for i, found in zip(pick, scored.logits, strict=True):
        assert_rows(model, contexts[i], TREE, found)


def test_a_crop_forgets_what_follows() -> None:
    model = shared_model()
    target = TransformersTarget(model)
    context = random_ids(16)
    sequence = target.open(32)
    target.score([Rows(sequence, context)])
    target.commit(sequence, ())
    target.crop(sequence, 10)
    (found,) = target.score([Rows(sequence, (1, 2), TREE)]).logits
    assert_rows(model, (*context[:10], 1, 2), TREE, found)


def test_a_prompt_in_chunks_is_the_prompt_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """BATCH-3: a pass forced through in pieces gives what the whole gives."""
    monkeypatch.setattr("outrider.targets.eager._PROMPT_ROWS", 4)
    model = shared_model("mistral")
    target = TransformersTarget(model)
    context = random_ids(31)
    sequence = target.open(64)
    (found,) = target.score([Rows(sequence, context, TREE)]).logits
    assert_rows(model, context, TREE, found)


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_invariant_rows_say_what_the_model_says(architecture: str) -> None:
    model = shared_model(architecture)
    target = TransformersTarget(model, numerics="invariant")
    context = random_ids(70)
    sequence = target.open(128)
    wide = DraftTree(tuple(range(12)), (-1, 0, 1, -1, 3, 3, 5, 6, 2, 8, 9, 10))
    (found,) = target.score([Rows(sequence, context, wide)]).logits
    assert_rows(model, context, wide, found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_invariant_rows_have_the_same_bits_alone_and_with_drafts(dtype: torch.dtype) -> None:
    model = tiny_model(dtype=dtype, scale=2.0)
    target = TransformersTarget(model, numerics="invariant")
    context = random_ids(40)
    drafts = random_ids(7, 5)
    sequence = target.open(128)
    (together,) = target.score([Rows(sequence, context, DraftTree.chain(drafts))]).logits
    target.commit(sequence, ())
    assert_same_bits_alone(target, sequence, drafts, together[1:])


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_invariant_rows_have_the_same_bits_in_any_branch_of_a_tree(
    dtype: torch.dtype, architecture: str
) -> None:
    model = tiny_model(architecture, dtype=dtype, scale=2.0)
    target = TransformersTarget(model, numerics="invariant")
    drafts = random_ids(3, 5)
    # Two wrong branches are stored before the right one, which crosses the edge of a tile.
    tree = DraftTree((7, 8, 9, 7, 8, 6, *drafts), (-1, 0, 1, -1, 3, 3, -1, 6, 7))
    company, sequence = target.open(128), target.open(128)
    other = Rows(company, random_ids(33, 2), DraftTree.chain(random_ids(7, 3)))
    _, together = target.score([other, Rows(sequence, random_ids(40), tree)]).logits
    target.commit(sequence, ())
    target.close(company)
    assert_same_bits_alone(target, sequence, drafts, together[-3:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_invariant_rows_have_the_same_bits_in_any_company(dtype: torch.dtype) -> None:
    model = tiny_model(dtype=dtype, scale=2.0)
    target = TransformersTarget(model, numerics="invariant")
    contexts = [random_ids(5 + 11 * seed, seed) for seed in range(5)]
    trees = [DraftTree.chain(random_ids(3 * seed, seed)) for seed in range(5)]
    alone: list[Tensor] = []
    for context, tree in zip(contexts, trees, strict=True):
        sequence = target.open(128)
        alone += target.score([Rows(sequence, context, tree)]).logits
        target.close(sequence)
    rows = [Rows(target.open(128), c, t) for c, t in zip(contexts, trees, strict=True)]
    for one, other in zip(target.score(rows).logits, alone, strict=True):
        assert torch.equal(one, other)


def test_invariant_bits_do_not_change_where_a_key_bucket_ends() -> None:
    model = tiny_model(dtype=torch.float32, scale=2.0, max_position_embeddings=1024)
    target = TransformersTarget(model, numerics="invariant")
    context, drafts = random_ids(509), random_ids(7, 5)
    sequence = target.open(600)
    (together,) = target.score([Rows(sequence, context, DraftTree.chain(drafts))]).logits
    target.commit(sequence, ())
    assert_same_bits_alone(target, sequence, drafts, together[1:])


def test_the_model_is_left_as_it_was_even_after_an_error() -> None:
    """CACHE-7: an exception inside a pass leaves the user's model unchanged."""
    model = tiny_model()
    before = model.config._attn_implementation
    target = TransformersTarget(model)
    sequence = target.open(8)
    with pytest.raises(IndexError):
        target.score([Rows(sequence, (10**6,))])
    assert model.config._attn_implementation == before
    assert torch.equal(whole(model, (1, 2, 3)), whole(tiny_model(), (1, 2, 3)))


def test_a_model_in_training_mode_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="training"):
        TransformersTarget(tiny_model().train())


def test_a_path_outside_the_tree_is_an_error() -> None:
    target = TransformersTarget(shared_model())
    sequence = target.open(8)
    with pytest.raises(ValueError, match="no scored rows"):
        target.commit(sequence, ())
    target.score([Rows(sequence, (1, 2))])
    with pytest.raises(ValueError, match="path"):
        target.commit(sequence, (0,))


def test_a_model_that_runs_a_layer_twice_is_refused_before_any_work() -> None:
    model = tiny_model()
    layers: Any = model.model.layers
    layers[1].self_attn.layer_idx = 0
    with pytest.raises(UnsupportedModelError, match="layer 0 twice"):
        TransformersTarget(model)


def test_caches_that_do_not_fit_are_refused_with_the_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = TransformersTarget(shared_model())
    target.require_room(4, 200, 8)
    monkeypatch.setattr("outrider.targets.memory.available_memory", lambda device: 100_000)
    with pytest.raises(OptionError, match=r"4 sequences of 200,192 tokens.* are free"):
        target.require_room(4, 200_000, 8)
    target.require_room(1, 8, 1)


def test_the_room_that_is_planned_is_the_room_that_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every slot is as long as the longest: a short request beside a long one takes as much."""
    target = TransformersTarget(shared_model())
    target.open(300)
    held = target.cache_bytes
    logits = VOCAB * (8 + 4)
    free = {"bytes": held + logits - 1}
    monkeypatch.setattr("outrider.targets.memory.available_memory", lambda device: free["bytes"])
    with pytest.raises(OptionError, match=r"2 sequences of 512 tokens at .* are held,.* are free"):
        target.require_room(1, 8, 1)
    free["bytes"] += 1
    target.require_room(1, 8, 1)
    target.open(8)
    assert target.cache_bytes == 2 * held


def test_a_target_says_what_its_numerics_are() -> None:
    kinds: tuple[Numerics, ...] = ("fast", "invariant")
    for numerics in kinds:
        assert TransformersTarget(shared_model(), numerics=numerics).numerics == numerics
    assert ScriptedTarget(lambda _: [0.0], 1).numerics == "fast"


def test_rows_scored_but_not_committed_survive_the_end_of_a_neighbour() -> None:
    model = shared_model()
    target, alone = TransformersTarget(model), TransformersTarget(model)
    first, second = target.open(32), target.open(32)
    only = alone.open(32)
    part = DraftTree((5, 6, 7), (-1, 0, 0))
    target.score([Rows(first, (9,)), Rows(second, (1, 2), part)])
    alone.score([Rows(only, (1, 2), part)])
    target.close(first)
    target.commit(second, (0, 2))
    alone.commit(only, (0, 2))
    (found,) = target.score([Rows(second, (8,))]).logits
    (expected,) = alone.score([Rows(only, (8,))]).logits
    torch.testing.assert_close(found, expected)
