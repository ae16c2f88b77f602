"""GGUF files are expanded once, faithfully, and refused when damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from outrider.errors import LoadError
from outrider.targets.gguf import GgufFile
from support.files import write_tiny_gguf


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "tiny model.gguf")


def test_weights_are_those_of_the_file(tiny: Path) -> None:
    folder = GgufFile(tiny).weights(torch.float32)
    stored = load_file(folder / "model.safetensors")
    (embedding,) = [t for t in gguf.GGUFReader(tiny).tensors if t.name == "token_embd.weight"]
    assert torch.equal(stored["model.embed_tokens.weight"], torch.tensor(embedding.data))
    halved = load_file(GgufFile(tiny).weights(torch.bfloat16) / "model.safetensors")
    for name, tensor in stored.items():
        assert torch.equal(halved[name], tensor.to(torch.bfloat16))


def test_the_tokenizer_keeps_text_and_special_tokens(tiny: Path) -> None:
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(GgufFile(tiny).description())
    ids = tokenizer("()!<|endoftext|>").input_ids
    assert ids == [63, 1, 0]
    assert tokenizer.decode(ids) == "()!<|endoftext|>"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "()!"
    assert tokenizer.eos_token_id == 0


def test_a_second_use_reads_the_cache(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = GgufFile(tiny).weights(torch.float32)

    def forbidden(*args: object) -> None:
        raise AssertionError("converted again")

    monkeypatch.setattr(GgufFile, "_convert", forbidden)
    monkeypatch.setattr(GgufFile, "_describe", forbidden)
    assert GgufFile(tiny).weights(torch.float32) == first


def test_a_file_is_known_by_its_content(tiny: Path, tmp_path: Path) -> None:
    first = GgufFile(tiny).description()
    moved = tiny.rename(tmp_path / "elsewhere.gguf")
    assert GgufFile(moved).description().name != first.name  # the name is part of the key
    write_tiny_gguf(tiny, seed=1)
    assert GgufFile(tiny).description() != first
    write_tiny_gguf(tiny, seed=0)
    assert GgufFile(tiny).description() == first


def test_conversion_is_silent(tiny: Path, capfd: pytest.CaptureFixture[str]) -> None:
    GgufFile(tiny).weights(torch.float32)
    assert capfd.readouterr() == ("", "")


def test_conversion_says_so_on_the_logger(tiny: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="outrider"):
        GgufFile(tiny).weights(torch.float32)
    assert caplog.messages == [
        "reading the tokenizer of tiny model.gguf (once)",
        "converting tiny model.gguf (once; this takes a while)",
    ]


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "x.gguf"
    other.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(LoadError, match="is not a GGUF file"):
        GgufFile(other)
    with pytest.raises(LoadError, match=r"cannot read .*No such file"):
        GgufFile(tmp_path / "absent.gguf")


@pytest.mark.parametrize("kept", [0.02, 0.5, 0.95])
def test_a_truncated_file_is_refused_and_caches_no_weights(
    kept: float, tiny: Path, cache: Path
) -> None:
    content = tiny.read_bytes()
    tiny.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(LoadError, match="damaged or unknown GGUF file") as caught:
        GgufFile(tiny).weights(torch.float32)
    assert "\n" not in str(caught.value)
    assert not [path for path in cache.iterdir() if path.name.endswith("float32")]


def test_a_missing_tensor_is_named(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = gguf.GGUFWriter.add_tensor

    def skip_one(self: gguf.GGUFWriter, name: str, *args: Any, **options: Any) -> None:
        if name != "blk.1.ffn_up.weight":
            kept(self, name, *args, **options)

    monkeypatch.setattr(gguf.GGUFWriter, "add_tensor", skip_one)
    write_tiny_gguf(tiny)
    with pytest.raises(LoadError, match=r"lacks the tensor model\.layers\.1\.mlp\.up_proj\.weight"):
        GgufFile(tiny).weights(torch.float32)
