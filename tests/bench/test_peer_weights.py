"""What a peer loads: the target's own weights, in a form that it reads, made once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, dequantize

from outrider.bench.peers import PeerError, weights
from outrider.bench.peers.gguf_files import write_gguf
from outrider.bench.peers.kinds import find_kind
from outrider.bench.peers.weights import PeerFiles, prepare_files
from outrider.checkpoints.base import Checkpoint
from outrider.checkpoints.exports import export_head
from outrider.checkpoints.read import read_checkpoint
from outrider.checkpoints.tensors import expected_shapes
from outrider.checkpoints.write import write_checkpoint
from outrider.heads.config import EagleConfig
from support.files import save_tiny_model, write_tiny_gguf


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))


def prepared(name: str, mode: str, type_of_weights: str, target: Path, **options: Any) -> PeerFiles:
    asked: dict[str, Any] = {"draft_model": None, "head": None, "python": Path(sys.executable)}
    return prepare_files(
        find_kind(name), mode, type_of_weights, target=str(target), **(asked | options)
    )


def tensors(path: Path) -> dict[str, tuple[str, Any]]:
    return {
        tensor.name: (tensor.tensor_type.name, dequantize(tensor.data, tensor.tensor_type))
        for tensor in GGUFReader(path).tensors
    }


def fields(path: Path) -> dict[str, Any]:
    found = GGUFReader(path).fields
    return {name: field.contents() for name, field in found.items() if name[:5] != "GGUF."}


@pytest.mark.parametrize(
    ("kind", "stored", "error"),
    [("float32", "F32", 0.0), ("bfloat16", "BF16", 2**-8), ("q8_0", "Q8_0", 1 / 100)],
)
def test_a_gguf_file_keeps_all_but_the_type_of_its_matrices(
    tmp_path: Path, kind: str, stored: str, error: float
) -> None:
    source = write_tiny_gguf(tmp_path / "tiny.gguf")
    write_gguf(source, kind, tmp_path / "new.gguf")
    before, after = tensors(source), tensors(tmp_path / "new.gguf")
    assert list(before) == list(after)
    for name, (_, data) in before.items():
        type_name, found = after[name]
        fits = kind != "q8_0" or data.shape[-1] % 32 == 0
        assert type_name == (stored if data.ndim > 1 and fits else "F32"), name
        largest = np.abs(data).max()
        assert np.abs(found - data).max() <= (error if type_name != "F32" else 0.0) * largest
    assert {type_name for type_name, _ in after.values()} == {stored, "F32"}
    names = fields(source).keys() - {"general.file_type"}
    assert {name: fields(tmp_path / "new.gguf")[name] for name in names} == {
        name: fields(source)[name] for name in names
    }


def test_llama_cpp_reads_a_file_that_is_made_once(tmp_path: Path) -> None:
    target = write_tiny_gguf(tmp_path / "tiny.gguf")
    made = Path(prepared("llama.cpp", "none", "float32", target).model)
    stamp = made.stat().st_mtime_ns
    assert Path(prepared("llama.cpp", "none", "float32", target).model) == made
    assert made.stat().st_mtime_ns == stamp
    assert Path(prepared("llama.cpp", "none", "q8_0", target).model) != made
    write_tiny_gguf(target, seed=1)
    assert Path(prepared("llama.cpp", "none", "float32", target).model) != made


def test_llama_cpp_takes_eight_bits_of_a_target_that_outrider_quantises(tmp_path: Path) -> None:
    target = write_tiny_gguf(tmp_path / "tiny.gguf")
    plain = prepared("llama.cpp", "none", "q8_0", target)
    assert prepared("llama.cpp", "none", "q8_0", Path(f"{target}@int8")) == plain


def test_a_folder_is_read_by_transformers_as_it_is(tmp_path: Path) -> None:
    target = save_tiny_model(tmp_path / "target")
    small = save_tiny_model(tmp_path / "small")
    found = prepared("transformers", "assisted", "float32", target, draft_model=str(small))
    assert found == PeerFiles(str(target), str(small))
    assert prepared("vllm", "none", "bfloat16", target) == PeerFiles(str(target))
    with pytest.raises(PeerError, match="has weights of eight bits, which are outrider's own"):
        prepared("vllm", "none", "float32", Path(f"{target}@int8"))


def test_a_head_is_exported_for_its_target(tmp_path: Path) -> None:
    target = save_tiny_model(tmp_path / "target", num_hidden_layers=12)
    config = EagleConfig(
        version=3,
        hidden_size=32,
        target_hidden_size=32,
        intermediate_size=48,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=64,
        draft_vocab_size=64,
        max_position_embeddings=64,
        feature_layers=None,
        owns_embeddings=False,
        owns_head=True,
    )
    import torch

    drawn = {name: torch.randn(shape) for name, shape in expected_shapes(config).items()}
    write_checkpoint(Checkpoint(config=config, tensors=drawn), "native", tmp_path / "head")
    found = prepared("vllm", "eagle3", "float32", target, head=str(tmp_path / "head"))
    assert found.head == str(export_head(str(tmp_path / "head"), str(target)))
    written = read_checkpoint(Path(found.head))
    assert (written.format, written.target) == ("speculators", str(target))


CONVERTER = """
import json, pathlib, sys
request = json.loads(sys.stdin.readline())
if request["weights"] == "int8":
    print(json.dumps({"error": "OSError: disk full"}), flush=True)
else:
    (pathlib.Path(request["out"]) / "told.json").write_text(json.dumps(request))
    print("{}", flush=True)
"""


def test_openvino_converts_with_its_own_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", CONVERTER]
    monkeypatch.setattr(weights, "adapter_command", lambda python, adapter: command)
    target = save_tiny_model(tmp_path / "target")
    made = prepared("openvino", "none", "float32", target).model
    told = json.loads((Path(made) / "told.json").read_text())
    assert (told["model"], told["tokenizer"]) == (str(target), str(target))
    assert told["weights"] == "float32"
    with pytest.raises(PeerError, match=r"cannot convert .* for openvino: .*OSError: disk full"):
        prepared("openvino", "none", "int8", target)
