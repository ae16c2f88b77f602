"""A head that does not fit its target is refused with both numbers, before any work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from random_heads import (
    HIDDEN,
    VOCAB,
    draft_config,
    eagle_config,
    medusa_config,
    random_head,
)
from transformers import AutoConfig, PreTrainedConfig

from outrider.checkpoints.base import HeadConfig
from outrider.checkpoints.fit import check_fit, require_own_target, resolve
from outrider.errors import LoadError, VocabularyMismatchError


def target(**changes: Any) -> PreTrainedConfig:
    sizes = {
        "hidden_size": HIDDEN,
        "vocab_size": VOCAB,
        "num_hidden_layers": 6,
        "num_attention_heads": 1,
    }
    config: PreTrainedConfig = AutoConfig.for_model("llama", **(sizes | changes))
    return config


@pytest.mark.parametrize(
    "config", [eagle_config(1), eagle_config(3), medusa_config(), draft_config()]
)
def test_sizes_are_compared_whatever_the_head(config: HeadConfig) -> None:
    check_fit(config, target(), "x")
    with pytest.raises(LoadError, match=r"x reads .* of size 8, but the target's have 10"):
        check_fit(config, target(hidden_size=10), "x")
    with pytest.raises(VocabularyMismatchError, match=r"x is for 16 token ids.* has 17"):
        check_fit(config, target(vocab_size=17), "x")


def test_a_head_of_another_width_is_compared_by_what_it_reads() -> None:
    config = eagle_config(target_hidden_size=6, owns_embeddings=True)
    check_fit(config, target(hidden_size=6), "x")
    with pytest.raises(LoadError, match="size 6, but the target's have 8"):
        check_fit(config, target(), "x")


def test_feature_layers_must_be_there() -> None:
    check_fit(eagle_config(feature_layers=(0, 3, 6)), target(), "x")
    with pytest.raises(LoadError, match="enters layer 7, but the target has 6 layers"):
        check_fit(eagle_config(feature_layers=(0, 3, 7)), target(), "x")


def test_the_default_layers_follow_the_targets_depth() -> None:
    config = eagle_config(feature_layers=None)
    assert resolve(config, target(num_hidden_layers=32), "x").feature_layers == (2, 16, 29)
    assert resolve(config, target(num_hidden_layers=3), "x").feature_layers == (2, 1, 0)
    assert resolve(eagle_config(1), target(), "x") == eagle_config(1)
    with pytest.raises(LoadError, match="but the target has 2"):
        check_fit(config, target(num_hidden_layers=2), "x")


def test_heads_trained_with_a_model_go_with_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "tuned"
    tuned = replace(random_head(medusa_config()), target=str(folder), changes_target=True)
    require_own_target(tuned, str(folder), "x")
    require_own_target(tuned, f"{tmp_path}/./tuned/", "x")
    require_own_target(replace(tuned, changes_target=False), "org/other", "x")
    with pytest.raises(LoadError, match=f"another target than org/other.*--target {folder}"):
        require_own_target(tuned, "org/other", "x")
