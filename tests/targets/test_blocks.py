"""Passes that read a GGUF file's blocks are passes over its expanded weights, bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

from outrider.targets import transformers
from outrider.targets.base import Rows
from outrider.targets.blocks import BlockLinear, Blocks, read_as_blocks, read_blocks, write_blocks
from outrider.targets.gguf import GgufFile
from outrider.targets.gguf_blocks import blocks_of
from outrider.targets.kernels import MOST_FEW_ROWS, load_kernels
from outrider.targets.loading import load_model
from outrider.targets.transformers import TransformersTarget
from outrider.types import DraftTree
from support.files import write_tiny_gguf

SIZES = {"nibbles": (8, 16, 32), "bytes": (4, 32, 32), "short_bytes": (4, 16, 16)} | {
    "offset_bytes": (8, 32, 32)
}
"""Bytes of scale and offset, bytes of whole numbers, and numbers, in a block of each kind."""

FORMATS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]


@pytest.fixture(autouse=True)
def _kernels() -> None:
    load_kernels()


def random_blocks(columns: int, depth: int, kind: str) -> Blocks:
    heads, numbers, count = SIZES[kind]
    scales = torch.randn(columns, depth // count, heads // 4).view(torch.uint8)
    whole = torch.randint(0, 256, (columns, depth // count, numbers), dtype=torch.uint8)
    return Blocks(torch.cat([scales, whole], dim=2).flatten(1), kind)


def widened(blocks: Blocks) -> Tensor:
    """Return what the blocks stand for, worked out number by number."""
    heads, _, count = SIZES[blocks.kind]
    columns = len(blocks.stored)
    parts = blocks.stored.view(columns, -1, heads + SIZES[blocks.kind][1])
    scales = parts[..., :heads].contiguous().view(torch.float32).double()
    whole = parts[..., heads:]
    if blocks.kind == "nibbles":
        numbers = torch.cat([whole & 15, whole >> 4], dim=2).double()
    else:
        numbers = whole.contiguous().view(torch.int8).double()
    offsets = scales[..., 1:] if heads == 8 else torch.zeros(())
    wide = (numbers * scales[..., :1] + offsets).float()
    return wide.reshape(columns, wide.shape[1] * count)


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("columns", [7, 48])
def test_a_product_of_blocks_has_the_bits_of_one_with_what_they_stand_for(
    columns: int, kind: str
) -> None:
    blocks = random_blocks(columns, 576, kind)
    weight = widened(blocks)
    assert torch.equal(blocks.expanded(), weight)
    for rows in (*range(15), 24, MOST_FEW_ROWS, 200):
        x = torch.randn(1, rows, 576)
        bias = torch.randn(columns)
        found = torch.ops.outrider.linear(x, blocks.stored, None, bias, kind)
        assert torch.equal(found, torch.ops.outrider.linear(x, weight, None, bias))


def test_bytes_that_are_no_blocks_are_refused() -> None:
    x = torch.randn(1, 1, 32)
    for stored, kind in ((torch.zeros(4, 25), "nibbles"), (torch.zeros(4, 24), "halves")):
        with pytest.raises(RuntimeError, match=r"no blocks of kind|not made of blocks"):
            torch.ops.outrider.linear(x, stored.to(torch.uint8), None, None, kind)
    with pytest.raises(RuntimeError, match="rows of 32 for weights of 64"):
        stored = torch.zeros(4, 48, dtype=torch.uint8)
        torch.ops.outrider.linear(x, stored, None, None, "nibbles")


# -- what a file holds ---------------------------------------------------------------------------


def random_bytes(form: gguf.GGMLQuantizationType, rows: int, depth: int) -> NDArray[np.uint8]:
    """Return rows in a format, of random numbers with scales and offsets that are finite."""
    count, size = gguf.GGML_QUANT_SIZES[form]
    random = np.random.default_rng(3)
    data = random.integers(0, 256, (rows * depth // count, size), dtype=np.uint8)
    halves = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
    for first in halves.get(form.name, (0,)):
        scales = random.normal(size=len(data)).astype(np.float16)
        data[:, first : first + 2] = scales.view(np.uint8).reshape(-1, 2)
    return data.reshape(rows, -1)


def write_both(folder: Path, form: str, rows: int = 24, depth: int = 512) -> tuple[Path, Tensor]:
    """Write a GGUF file of one matrix, and beside it its expansion, with the rows turned round."""
    kind = gguf.GGMLQuantizationType[form]
    data = random_bytes(kind, rows, depth)
    writer = gguf.GGUFWriter(folder / "one.gguf", "llama")
    writer.add_tensor("one", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    weight = torch.from_numpy(gguf.quants.dequantize(data, kind)[::-1].copy())
    save_file({"other": weight}, folder / "expanded.safetensors")
    return folder / "one.gguf", weight


@pytest.mark.parametrize("form", FORMATS)
def test_blocks_of_every_format_stand_for_the_files_values(form: str, tmp_path: Path) -> None:
    path, weight = write_both(tmp_path, form)
    (blocks,) = blocks_of(path, tmp_path).values()
    assert torch.equal(blocks.expanded(), weight)
    assert torch.equal(widened(blocks), weight)


def test_a_weight_that_the_file_does_not_hold_stays_as_it_is(tmp_path: Path) -> None:
    path, weight = write_both(tmp_path, "Q4_1")
    weight[3, 5] += 1
    save_file({"other": weight}, tmp_path / "expanded.safetensors")
    assert blocks_of(path, tmp_path) == {}


def test_written_blocks_are_read_back(tmp_path: Path) -> None:
    written = {kind: random_blocks(3, 64, kind) for kind in SIZES}
    write_blocks(tmp_path, written)
    found = read_blocks(tmp_path)
    assert {name: blocks.kind for name, blocks in found.items()} == {kind: kind for kind in SIZES}
    for name, blocks in found.items():
        assert torch.equal(blocks.stored, written[name].stored)


# -- models --------------------------------------------------------------------------------------


def test_a_model_gets_its_own_layers_back_whatever_happens() -> None:
    model = nn.Sequential(nn.Linear(32, 8), nn.Linear(8, 8))
    layers = list(model)
    with (
        pytest.raises(KeyError),
        read_as_blocks(model, {"0.weight": random_blocks(8, 32, "bytes")}),
    ):
        assert isinstance(model[0], BlockLinear)
        assert model[1] is layers[1]
        raise KeyError
    assert list(model) == layers


def test_a_weight_with_two_names_is_found_by_either() -> None:
    model = nn.Module()
    model.embed, model.head = nn.Embedding(8, 32), nn.Linear(32, 8, bias=False)
    model.head.weight = model.embed.weight
    with read_as_blocks(model, {"embed.weight": random_blocks(8, 32, "bytes")}):
        assert isinstance(model.head, BlockLinear)
        assert isinstance(model.embed, nn.Embedding)


def rows_of(target: TransformersTarget, context: tuple[int, ...]) -> Tensor:
    sequence = target.open(64)
    tree = DraftTree((5, 6, 7), (-1, 0, 0))
    (found,) = target.score([Rows(sequence, context, tree)]).logits
    return found


def test_a_compiled_target_reads_blocks_gives_back_what_they_stand_for_and_keeps_every_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    path = write_tiny_gguf(tmp_path / "tiny.gguf", formats=("Q4_1", "Q8_0", "Q5_0", "F32"))
    loaded = load_model(str(path), device="cpu")
    assert loaded.gguf is not None
    unread = TransformersTarget(loaded.model, compile=None, gguf=loaded.gguf)
    assert not unread.is_compiled  # and nothing was converted unasked
    assert loaded.gguf.blocks(make=False) is None
    given_back: list[int] = []
    monkeypatch.setattr(
        transformers, "page_out", lambda parts: given_back.extend(one.data_ptr() for one in parts)
    )
    wide = TransformersTarget(loaded.model, compile=True)
    assert not given_back
    narrow = TransformersTarget(loaded.model, compile=True, gguf=loaded.gguf)
    assert wide.is_compiled and narrow.is_compiled
    found: Any = loaded.gguf.blocks(make=False)
    weights = dict(loaded.model.named_parameters(remove_duplicate=False))
    assert given_back and set(given_back) == {weights[name].data_ptr() for name in found}
    assert {blocks.kind for blocks in found.values()} == {"nibbles", "bytes"}
    for length in (1, 9, 40):
        context = tuple(range(2, 2 + length))
        assert torch.equal(rows_of(narrow, context), rows_of(wide, context))
    # A later process finds what this one has made.
    assert TransformersTarget(loaded.model, compile=None, gguf=loaded.gguf).is_compiled


def test_blocks_stand_for_float32_weights_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    path = write_tiny_gguf(tmp_path / "tiny.gguf", formats=("Q8_0",))
    assert load_model(str(path), dtype="bfloat16", device="cpu").gguf is None
    assert load_model(f"{path}@int8", device="cpu").gguf is None
    assert GgufFile(path).blocks(make=False) is None
