"""Folders as the original Medusa code has them, written here by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from random_heads import medusa_config, random_head, write_folder
from safetensors.torch import load_file, save_file
from torch import Tensor

from outrider.checkpoints.read import read_checkpoint
from outrider.checkpoints.write import write_checkpoint
from outrider.errors import LoadError
from outrider.heads.config import MedusaConfig

CONFIG: dict[str, Any] = {
    "medusa_num_heads": 2,
    "medusa_num_layers": 1,
    "base_model_name_or_path": "org/target",
    "version": "2",
}
NAMES = ["medusa_lm_head.pt", "medusa_lm_head.safetensors"]


def heads(count: int = 5, blocks: int = 1) -> dict[str, Tensor]:
    tensors = {}
    for head in range(count):
        for block in range(blocks):
            tensors[f"{head}.{block}.linear.weight"] = torch.randn(8, 8)
            tensors[f"{head}.{block}.linear.bias"] = torch.randn(8)
        tensors[f"{head}.{blocks}.weight"] = torch.randn(16, 8)
    return tensors


@pytest.mark.parametrize("name", NAMES)
def test_heads_are_counted_in_the_file_not_in_the_configuration(name: str, tmp_path: Path) -> None:
    """TRAIN-10"""
    tensors = heads(5, blocks=2)
    read = read_checkpoint(write_folder(tmp_path, CONFIG, tensors, name))
    assert read.config == MedusaConfig(
        num_heads=5, num_layers=2, hidden_size=8, vocab_size=16, base_model="org/target"
    )
    assert torch.equal(read.tensors["heads.4.blocks.1.bias"], tensors["4.1.linear.bias"])
    assert torch.equal(read.tensors["heads.4.output.weight"], tensors["4.2.weight"])
    assert (read.title, read.target, read.changes_target) == ("Medusa-1", "org/target", False)


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        ("1.0.linear.bias", r"heads\.1\.blocks\.0\.bias"),
        ("3.1.weight", r"heads\.3\.output\.weight"),
        ("0.1.weight", r"heads\.0\.output\.weight"),
    ],
)
def test_a_gap_among_the_heads_is_named(missing: str, problem: str, tmp_path: Path) -> None:
    tensors = {name: one for name, one in heads().items() if name != missing}
    with pytest.raises(LoadError, match=problem):
        read_checkpoint(write_folder(tmp_path, CONFIG, tensors, NAMES[0]))


@pytest.mark.parametrize("extra", ["0.1.bias", "0.2.weight", "lm_head.weight", "0.0.linear.scale"])
def test_a_foreign_tensor_is_named(extra: str, tmp_path: Path) -> None:
    tensors = heads() | {extra: torch.randn(8)}
    with pytest.raises(LoadError, match=f"the tensor {extra} is no part"):
        read_checkpoint(write_folder(tmp_path, CONFIG, tensors, NAMES[1]))


def test_heads_of_two_sizes_are_refused_with_both_shapes(tmp_path: Path) -> None:
    tensors = heads() | {"2.1.weight": torch.randn(17, 8)}
    with pytest.raises(LoadError, match=r"\[17, 8\], but .* \[16, 8\]"):
        read_checkpoint(write_folder(tmp_path, CONFIG, tensors, NAMES[0]))


def test_heads_beside_a_model_of_their_own_change_the_target(tmp_path: Path) -> None:
    model = {"model.layers.0.mlp.up_proj.weight": torch.randn(8, 8)}
    beside = write_folder(tmp_path / "beside", CONFIG, heads(), NAMES[0])
    save_file(model, beside / "model.safetensors")
    named = {f"medusa_head.{name}": one for name, one in heads().items()}
    among = write_folder(tmp_path / "among", CONFIG, model | named, "model.safetensors")
    for folder in (beside, among):
        read = read_checkpoint(folder)
        assert (read.title, read.changes_target) == ("Medusa-2", True)
        assert read.target == str(folder)
        assert getattr(read.config, "num_heads") == 5  # noqa: B009
        assert getattr(read.config, "base_model") == "org/target"  # noqa: B009


def test_both_files_of_the_original_format_are_written_alike(tmp_path: Path) -> None:
    head = random_head(medusa_config(base_model="org/target"))
    assert write_checkpoint(head, "medusa", tmp_path / "new") == ("config.json", *sorted(NAMES))
    pickled = torch.load(tmp_path / "new" / NAMES[0], weights_only=True)
    plain = load_file(tmp_path / "new" / NAMES[1])
    assert pickled.keys() == plain.keys()
    assert "2.0.linear.weight" in plain and "2.1.weight" in plain
    assert all(torch.equal(pickled[name], plain[name]) for name in plain)


def test_a_configuration_without_heads_is_named(tmp_path: Path) -> None:
    folder = write_folder(
        tmp_path, CONFIG, {"model.norm.weight": torch.ones(8)}, "model.safetensors"
    )
    with pytest.raises(LoadError, match="medusa_head"):
        read_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(LoadError, match=r"medusa_lm_head\.safetensors nor medusa_lm_head\.pt"):
        read_checkpoint(folder)
