"""A report on a head says what it is, what it takes, and why it does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from random_heads import (
    HIDDEN,
    VOCAB,
    draft_config,
    eagle_config,
    medusa_config,
    random_head,
)
from transformers import AutoConfig, PreTrainedConfig

from outrider import bundled
from outrider.checkpoints.inspection import inspect_head
from outrider.checkpoints.write import write_checkpoint
from outrider.errors import LoadError
from outrider.targets.base import NORMED
from outrider.targets.inspection import inspect_pair
from support.files import save_tiny_model


def target(**changes: Any) -> PreTrainedConfig:
    sizes = {"hidden_size": HIDDEN, "vocab_size": VOCAB, "num_attention_heads": 2}
    config: PreTrainedConfig = AutoConfig.for_model(
        "llama", **(sizes | {"num_hidden_layers": 6} | changes)
    )
    return config


def test_an_eagle_head_is_described(tmp_path: Path) -> None:
    head = random_head(eagle_config(feature_layers=None), torch.bfloat16)
    write_checkpoint(head, "speculators", tmp_path / "head")
    report = inspect_head(str(tmp_path / "head"), "eagle", "org/target", target())
    assert (report.title, report.format, report.trained_for) == (
        "EAGLE-3",
        "speculators",
        "org/target",
    )
    weights = {name: one for name, one in head.tensors.items() if name not in ("d2t", "t2d")}
    assert report.parameters == sum(one.numel() for one in weights.values())
    assert report.weight_bytes == 2 * report.parameters + 8 * (VOCAB // 2) + VOCAB
    assert (report.dtype, report.kv_bytes_per_token) == ("bfloat16", 2 * 4 * 2)
    assert (report.vocabulary, report.draft_vocabulary) == (VOCAB, VOCAB // 2)
    assert (report.layers, report.heads, report.feature_layers) == (1, None, (2, 3, 3))
    assert report.problem is None


def test_medusa_heads_are_described(tmp_path: Path) -> None:
    head = replace(random_head(medusa_config(num_layers=2)), changes_target=True)
    write_checkpoint(head, "native", tmp_path / "head")
    report = inspect_head(str(tmp_path / "head"), None, "org/target", target())
    assert (report.title, report.heads, report.layers) == ("Medusa-2", 3, 2)
    assert (report.changes_target, report.trained_for) == (True, None)
    assert (report.kv_bytes_per_token, report.feature_layers) == (0, (NORMED,))
    assert report.draft_vocabulary == report.vocabulary == VOCAB


def test_a_draft_model_that_shares_its_ends_is_described(tmp_path: Path) -> None:
    head = random_head(draft_config(5), torch.bfloat16)
    write_checkpoint(head, "native", tmp_path / "draft")
    report = inspect_head(str(tmp_path / "draft"), "draft", "org/target", target())
    assert (report.title, report.heads, report.layers) == ("draft model", None, 2)
    # Two layers of two key heads, two numbers each, keys and values, of two bytes.
    assert (report.kv_bytes_per_token, report.feature_layers) == (2 * 2 * 2 * 2 * 2, ())
    assert (report.vocabulary, report.draft_vocabulary) == (VOCAB, 5)
    assert report.weight_bytes == 2 * report.parameters + 8 * 5
    assert (report.dtype, report.trained_for, report.problem) == ("bfloat16", "org/target", None)


@pytest.mark.parametrize("argument", [True, False])
def test_a_pair_with_such_a_draft_model_is_no_pair_of_whole_models(
    argument: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: dict[str, Any] = {"hidden_size": HIDDEN, "vocab_size": VOCAB}
    model = save_tiny_model(tmp_path / "model", **sizes)
    draft = tmp_path / "kept" / model.name / "draft"
    write_checkpoint(random_head(draft_config(5)), "native", draft)
    monkeypatch.setattr(bundled, "_FOLDER", tmp_path / "kept")
    monkeypatch.chdir(tmp_path)
    pair = inspect_pair("model", f"model:{draft}" if argument else "model")
    assert pair.drafter is None and pair.unsupported == ()
    assert pair.head is not None and pair.head.title == "draft model"
    assert pair.total_bytes is not None and pair.total_bytes > pair.head.weight_bytes


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"hidden_size": 4}, "size 8, but the target's have 4"),
        ({"vocab_size": 99}, "16 token ids, but the target has 99"),
        ({"num_hidden_layers": 4}, "enters layer 5, but the target has 4 layers"),
    ],
)
def test_what_does_not_fit_is_reported_not_raised(
    changes: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    write_checkpoint(random_head(eagle_config()), "native", tmp_path / "head")
    report = inspect_head(str(tmp_path / "head"), "eagle", "org/target", target(**changes))
    assert report.problem is not None and problem in report.problem


def test_what_cannot_be_read_is_raised(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no such folder"):
        inspect_head(str(tmp_path / "nowhere"), "eagle", "org/target", target())


def test_a_pair_with_a_head_adds_up(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "hidden_size": HIDDEN,
        "vocab_size": VOCAB,
        "num_hidden_layers": 6,
    }
    model = save_tiny_model(tmp_path / "model", **sizes)
    write_checkpoint(random_head(eagle_config()), "native", tmp_path / "head")
    pair = inspect_pair(str(model), f"eagle:{tmp_path / 'head'}")
    alone = inspect_pair(str(model))
    assert pair.head is not None and pair.unsupported == ()
    assert pair.total_bytes is not None and alone.total_bytes is not None
    assert pair.head.kv_bytes_per_token is not None
    needed = pair.head.weight_bytes + 128 * pair.head.kv_bytes_per_token
    assert pair.total_bytes - alone.total_bytes == needed
    assert pair.to_dict()["head"]["title"] == "EAGLE-3"
    other = save_tiny_model(tmp_path / "other", **(sizes | {"num_hidden_layers": 3}))
    misfit = inspect_pair(str(other), f"eagle:{tmp_path / 'head'}")
    assert len(misfit.unsupported) == 1 and "layer 5" in misfit.unsupported[0]
