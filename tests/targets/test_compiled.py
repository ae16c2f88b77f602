"""Compiled passes against the model's own answers, and against each other bit by bit."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from outrider.errors import CompilerError
from outrider.targets.base import Rows
from outrider.targets.diskcache import _write_manifest
from outrider.targets.int8 import Int8Linear
from outrider.targets.kernels import load_kernels
from outrider.targets.quantization import quantize_int8
from outrider.targets.transformers import TransformersTarget
from outrider.types import DraftTree
from support.tiny import VOCAB, random_ids, tiny_model

TREE = DraftTree((5, 6, 7, 8, 9, 3), (-1, 0, 0, -1, 3, 2))
CONTEXT = (3, 1, 4, 1, 5, 9, 2, 6)
ARCHITECTURES = ["llama", "gemma2", "phi"]


@pytest.fixture(scope="module")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(cache_folder))


def compiled(model: PreTrainedModel, **options: Any) -> TransformersTarget:
    target = TransformersTarget(model, compile=True, **options)
    assert target.is_compiled
    return target


def own_rows(model: PreTrainedModel, context: tuple[int, ...], tree: DraftTree) -> torch.Tensor:
    """Return what the model itself says after the context, and after each path of the tree."""
    paths = [list(context)]
    for token, parent in zip(tree.tokens, tree.parents, strict=True):
        paths.append([*paths[parent + 1], token])
    with torch.inference_mode():
        return torch.stack([model(torch.tensor([path])).logits[0, -1] for path in paths])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("length", [1, 30, 100])
def test_compiled_rows_say_what_the_model_says(architecture: str, length: int) -> None:
    model = tiny_model(architecture, dtype=torch.float32, scale=2.0)
    target = compiled(model)
    context = random_ids(length)
    sequence = target.open(128)
    (found,) = target.score([Rows(sequence, context, TREE)]).logits
    torch.testing.assert_close(found, own_rows(model, context, TREE), atol=2e-4, rtol=2e-4)


def test_a_ragged_batch_says_what_its_requests_say_alone() -> None:
    model = tiny_model(dtype=torch.float32)
    target = compiled(model)
    contexts = [random_ids(length, length) for length in (3, 70, 14, 31)]
    handles = [target.open(128) for _ in contexts]
    order = [2, 0, 3]
    scored = target.score([Rows(handles[i], contexts[i], TREE) for i in order])
    for i, found in zip(order, scored.logits, strict=True):
        expected = own_rows(model, contexts[i], TREE)
        torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_has_the_same_bits_alone_in_a_draft_and_in_a_batch(dtype: torch.dtype) -> None:
    model = tiny_model(dtype=dtype, scale=2.0, hidden_size=48, num_attention_heads=6)
    target = compiled(model)
    context, drafts = random_ids(40), random_ids(11, 5)
    handles = [target.open(128) for _ in range(2)]
    for handle in handles:
        target.score([Rows(handle, context)])
        target.commit(handle, ())
    rows = Rows(handles[0], (1,), DraftTree.chain(drafts))
    together = target.score([rows, Rows(handles[1], (4, 5, 6), TREE)]).logits[0]
    for row, token in enumerate((1, *drafts)):
        (alone,) = target.score([Rows(handles[1], (token,))]).logits
        target.commit(handles[1], ())
        assert torch.equal(alone[0], together[row])


def test_a_branch_has_the_bits_of_the_chain_it_stands_for() -> None:
    model = tiny_model("gemma2", dtype=torch.float32, scale=2.0)
    target = compiled(model)
    context = random_ids(40)
    sequence = target.open(128)
    target.score([Rows(sequence, context)])
    target.commit(sequence, ())
    wide = DraftTree(tuple(i % VOCAB for i in range(70)), (*[-1] * 66, 3, 66, 67, 65))
    found = target.score([Rows(sequence, (1,), wide)]).logits[0]
    chain = DraftTree.chain([3, 66 % VOCAB, 67 % VOCAB, 68 % VOCAB])
    expected = target.score([Rows(sequence, (1,), chain)]).logits[0]
    assert not torch.equal(found[0], found[1])
    # 71 rows go through another product than 5, so only the attention keeps its bits.
    assert torch.allclose(found[[0, 4, 67, 68, 69]], expected, atol=1e-5)


def test_compiled_passes_are_found_again_and_made_again_if_damaged(cache_folder: Path) -> None:
    model = tiny_model(dtype=torch.float32)
    compiled(model)
    assert TransformersTarget(model, compile=None).is_compiled
    for package in cache_folder.glob("pass-*/pass.pt2"):
        package.write_bytes(package.read_bytes()[:-100])
    assert not TransformersTarget(model, compile=None).is_compiled
    compiled(model)
    assert TransformersTarget(model, compile=None).is_compiled


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (2, 1), (2, 4)])
def test_compiled_passes_that_change_bits_in_any_shape_of_use_are_not_invariant(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One row or several, of one sequence or of more: plain decoding and drafts, alone or not."""
    model = tiny_model(dtype=torch.float32)
    compiled(model)
    tried: list[tuple[int, ...]] = []

    def holds(target: object, *found: int) -> bool:
        tried.append(found)
        return found != shape

    monkeypatch.setattr("outrider.targets.transformers.same_bits", holds)
    with caplog.at_level(logging.WARNING, logger="outrider"):
        target = TransformersTarget(model, numerics="invariant", compile=None)
    assert tried and not target.is_compiled
    assert "change the bits" in caplog.text
    assert TransformersTarget(model, compile=None).is_compiled


def test_int8_layers_are_packed_for_compiled_passes_and_say_what_they_said() -> None:
    models = [tiny_model("llama", dtype=torch.float32, scale=2.0) for _ in range(3)]
    for model in models:
        quantize_int8(model)
    eager = own_rows(models[0], CONTEXT, TREE)
    targets = [compiled(models[1]), TransformersTarget(models[2], compile=None)]
    for target in targets:  # made for one, and found for another that was not packed yet
        assert target.is_compiled
        layers = [one for one in target.model.modules() if isinstance(one, Int8Linear)]
        assert layers and all(layer.is_packed for layer in layers)
        (found,) = target.score([Rows(target.open(128), CONTEXT, TREE)]).logits
        torch.testing.assert_close(found, eager, atol=5e-3, rtol=5e-3)
    # All layers' states are held for no more rows of a prompt than read the weights together.
    passes: Any = targets[0]._passes
    counts: list[int] = []
    run = passes._pass

    def count(spans: Any, layers: Any) -> None:
        counts.append(sum(map(len, spans)))
        run(spans, layers)

    passes._pass = count
    targets[0].score([Rows(targets[0].open(256), random_ids(150))])
    assert max(counts) == 64 and sum(counts) == 150
    # What is packed is also read by passes that are not compiled.
    torch.testing.assert_close(own_rows(models[1], CONTEXT, TREE), eager, atol=5e-3, rtol=5e-3)


def test_other_weights_share_a_compiled_pass(cache_folder: Path) -> None:
    compiled(tiny_model(dtype=torch.float32))
    other = tiny_model(dtype=torch.float32, seed=7)
    target = TransformersTarget(other, compile=None)
    assert target.is_compiled
    (found,) = target.score([Rows(target.open(16), (1, 2, 3))]).logits
    expected = own_rows(other, (1, 2, 3), DraftTree())
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-4)


def test_without_a_compiler_passes_are_eager_and_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from outrider.targets import kernels

    kernels.machine_digest.cache_clear()
    monkeypatch.setattr("shutil.which", lambda name: None)
    with caplog.at_level(logging.WARNING, logger="outrider"):
        target = TransformersTarget(tiny_model(dtype=torch.float32), compile=True)
    assert not target.is_compiled
    assert "no C++ compiler" in caplog.text and len(caplog.records) == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_a_dtype_without_kernels_stays_eager(
    dtype: torch.dtype, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="outrider"):
        target = TransformersTarget(tiny_model(dtype=dtype), compile=True)
    assert not target.is_compiled
    assert str(dtype).removeprefix("torch.") in caplog.text


def test_a_pass_that_does_not_load_is_compiled_again(cache_folder: Path) -> None:
    model = tiny_model(dtype=torch.float32)
    compiled(model)
    for entry in cache_folder.glob("pass-*"):
        (entry / "pass.pt2").write_bytes(b"whole, and no package")
        _write_manifest(entry)
    assert not TransformersTarget(model, compile=None).is_compiled
    compiled(model)
    assert TransformersTarget(model, compile=None).is_compiled


def test_kernels_that_do_not_load_are_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise OSError("undefined symbol")

    monkeypatch.setattr(torch.ops, "load_library", refuse)
    with pytest.raises(CompilerError, match="do not load: undefined symbol"):
        load_kernels.__wrapped__()
