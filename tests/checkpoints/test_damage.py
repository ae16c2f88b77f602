"""Whatever is wrong with a file is one line that names it, and nothing in a file is ever run."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from random_heads import draft_config, eagle_config, random_head
from safetensors.torch import load_file, save_file

from outrider.checkpoints.read import find_folder, holds_native, load_head, read_checkpoint
from outrider.checkpoints.write import write_checkpoint
from outrider.errors import LoadError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_checkpoint(random_head(eagle_config()), "eagle", tmp_path / "head")
    return tmp_path / "head"


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize(
    ("name", "damage", "problem"),
    [
        ("config.json", Path.unlink, r"config\.json: No such file"),
        ("config.json", lambda path: path.write_text("{"), r"config\.json is not JSON"),
        ("config.json", lambda path: path.write_bytes(b"\xff\xfe"), r"config\.json is not JSON"),
        ("config.json", lambda path: path.write_text("[]"), r"config\.json is not a JSON object"),
        ("config.json", lambda path: path.write_text("{}"), r"config\.json lacks hidden_size"),
        ("model.safetensors", Path.unlink, r"holds neither model\.safetensors nor pytorch_model"),
        ("model.safetensors", truncate, r"model\.safetensors: damaged"),
        ("model.safetensors", lambda path: path.write_bytes(b""), "the file is empty"),
        ("model.safetensors", lambda path: path.write_bytes(b"hello" * 9), "not a safetensors"),
        (
            "model.safetensors",
            lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid"),
            "Git LFS pointer",
        ),
    ],
)
def test_a_damaged_file_is_one_line_naming_it(
    name: str, damage: Callable[[Path], Any], problem: str, folder: Path
) -> None:
    damage(folder / name)
    with pytest.raises(LoadError, match=problem) as caught:
        read_checkpoint(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


class Trap:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def write_pickles(folder: Path) -> dict[str, Path]:
    files = {name: folder / f"{name}.bin" for name in ("zip", "trap", "raw", "short", "text")}
    files |= {name: folder / f"{name}.bin" for name in ("list", "empty", "nested")}
    torch.save({"a": Trap(folder / "sprung")}, files["trap"])
    files["raw"].write_bytes(pickle.dumps({"a": Trap(folder / "sprung")}))
    torch.save({"a": torch.ones(99)}, files["zip"])
    files["short"].write_bytes(files["zip"].read_bytes()[:-200])
    files["text"].write_text("hello world")
    torch.save([torch.ones(3)], files["list"])
    torch.save({}, files["empty"])
    torch.save({"state": {"a": torch.ones(3)}}, files["nested"])
    return files


@pytest.mark.parametrize(
    ("which", "problem"),
    [
        ("trap", "holds more than tensors, which is not read"),
        ("raw", "damaged"),
        ("short", "damaged"),
        ("text", "damaged"),
        ("list", "no table of tensors"),
        ("empty", "no table of tensors"),
        ("nested", "'state' is not a named tensor"),
    ],
)
def test_a_pickle_of_anything_but_tensors_is_refused_unread(
    which: str, problem: str, folder: Path, tmp_path: Path
) -> None:
    (folder / "model.safetensors").unlink()
    write_pickles(tmp_path)[which].rename(folder / "pytorch_model.bin")
    with pytest.raises(LoadError, match=problem):
        read_checkpoint(folder)
    assert not (tmp_path / "sprung").exists()


def split(folder: Path) -> dict[str, str]:
    """Part the weights in two files, and return which tensor went where."""
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    where = {name: f"model-{place % 2}.safetensors" for place, name in enumerate(names)}
    for file in set(where.values()):
        save_file({n: tensors[n] for n in names if where[n] == file}, folder / file)
    (folder / "model.safetensors").unlink()
    return where


def write_index(folder: Path, index: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_weights_in_several_files_are_read_by_their_index(folder: Path) -> None:
    whole = load_file(folder / "model.safetensors")
    write_index(folder, {"weight_map": split(folder)})
    read = read_checkpoint(folder)
    assert torch.equal(read.tensors["fc.weight"], whole["fc.weight"])
    assert len(read.tensors) == len(whole)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"fc.weight": "model-7.safetensors"}, r"model-7\.safetensors: no such file"),
        ({"fc.weight": "../model.safetensors"}, "which is not in the folder"),
        ({"ghost": "model-0.safetensors"}, r"model-0\.safetensors lacks ghost"),
        ({"fc.weight": 3}, "no weight_map"),
    ],
)
def test_an_index_that_lies_is_refused(change: dict[str, Any], problem: str, folder: Path) -> None:
    write_index(folder, {"weight_map": split(folder) | change})
    with pytest.raises(LoadError, match=problem):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"hydra_num_heads": 4}, "Hydra"),
        ({"architectures": ["DFlashDraftModel"], "dflash_config": {}}, "DFlash"),
        ({"architectures": ["DSparkSpeculator"]}, "DSpark"),
        ({"model_type": "mlp_speculator"}, "MLP speculator"),
        ({"architectures": ["MTPDraftModel"]}, "multi-token prediction"),
    ],
)
def test_a_head_of_another_kind_is_called_by_its_name(
    change: dict[str, Any], kind: str, folder: Path
) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(LoadError, match=f"a {kind} head is not supported; supported are EAGLE"):
        read_checkpoint(folder)


def test_a_native_folder_of_another_time_is_refused(tmp_path: Path) -> None:
    write_checkpoint(random_head(eagle_config()), "native", tmp_path / "head")
    path = tmp_path / "head" / "config.json"
    written = json.loads(path.read_text())
    for change, problem in (
        ({"format_version": 2}, "format_version is 2, not 1"),
        ({"outrider_head": "hydra"}, "it must be eagle, medusa or draft"),
        ({"mood": "good"}, "unknown key mood"),
        ({"head": written["head"] | {"norm": True}}, "norm is unknown; known are"),
        ({"head": None}, "no configuration of the head"),
    ):
        path.write_text(json.dumps(written | change))
        with pytest.raises(LoadError, match=problem):
            read_checkpoint(tmp_path / "head")


def test_a_head_is_found_in_a_folder_only(folder: Path) -> None:
    assert find_folder(str(folder)) == folder
    with pytest.raises(LoadError, match="it is a file; name the folder"):
        find_folder(str(folder / "config.json"))
    with pytest.raises(LoadError, match="no such folder, and not among the downloaded"):
        find_folder(str(folder / "nowhere"))
    with pytest.raises(LoadError, match="no such folder, and not among the downloaded"):
        find_folder("org/no-such-head")


def test_a_head_of_the_other_kind_is_said_to_be_one(folder: Path) -> None:
    assert load_head(str(folder), "eagle").kind == "eagle"
    with pytest.raises(LoadError, match=f"is EAGLE-3: write eagle:{folder}"):
        load_head(str(folder), "medusa")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"num_layers": 3}, r"config\.json: num_layers is 3, but the architecture has 2"),
        ({"draft_vocab_size": 17}, r"config\.json: a draft model cannot draft 17 token ids of 16"),
        (
            {"draft_vocab_size": 4},
            r"token_ids has shape \[8\], but its configuration asks for \[4\]",
        ),
        ({"draft_vocab_size": 16}, "the tensor token_ids is no part"),
        ({"architecture": {"model_type": "hydra"}}, r"config\.json: architecture is none that"),
        ({"architecture": 3}, r"config\.json: architecture is 3; it must be a table"),
        ({"mood": "good"}, "mood is unknown"),
    ],
)
def test_a_draft_model_that_contradicts_itself_is_refused(
    change: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    write_checkpoint(random_head(draft_config()), "native", tmp_path / "draft")
    path = tmp_path / "draft" / "config.json"
    written = json.loads(path.read_text())
    path.write_text(json.dumps(written | {"head": written["head"] | change}))
    with pytest.raises(LoadError, match=problem) as caught:
        read_checkpoint(tmp_path / "draft")
    assert "\n" not in str(caught.value)


def test_a_draft_model_is_no_head_and_its_spec_says_so(tmp_path: Path, folder: Path) -> None:
    draft = tmp_path / "draft"
    write_checkpoint(random_head(draft_config()), "native", draft)
    with pytest.raises(LoadError, match=f"is a draft model: write model:{draft}"):
        load_head(str(draft), "eagle")
    with pytest.raises(LoadError, match=f"is EAGLE-3: write eagle:{folder}"):
        load_head(str(folder), "draft")


def test_our_own_format_is_told_from_whole_models(tmp_path: Path, folder: Path) -> None:
    write_checkpoint(random_head(draft_config()), "native", tmp_path / "draft")
    assert holds_native(str(tmp_path / "draft"))
    assert not holds_native(str(folder))
    assert not any(map(holds_native, [str(tmp_path), "org/no-such", "no such:name", "a.gguf"]))
