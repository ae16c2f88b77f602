"""Small trained heads of random numbers, and folders of them as other programs write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig

from outrider.checkpoints.base import Checkpoint, HeadConfig
from outrider.checkpoints.tensors import expected_shapes
from outrider.heads.config import DraftConfig, EagleConfig, MedusaConfig
from outrider.heads.draft import TOKEN_IDS, describe_draft
from outrider.targets.base import NORMED

VOCAB = 16
HIDDEN = 8


def eagle_config(version: int = 3, **changes: Any) -> EagleConfig:
    """Return a small EAGLE configuration: version 3 drafts half of the token ids."""
    values: dict[str, Any] = {
        "version": version,
        "hidden_size": HIDDEN,
        "target_hidden_size": HIDDEN,
        "intermediate_size": 12,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 2,
        "vocab_size": VOCAB,
        "draft_vocab_size": VOCAB // 2 if version == 3 else VOCAB,
        "max_position_embeddings": 64,
        "feature_layers": (2, 3, 5) if version == 3 else (NORMED,),
        "owns_embeddings": False,
        "owns_head": version == 3,
        "fc_bias": version == 1,
    }
    return EagleConfig(**(values | changes))


def medusa_config(**changes: Any) -> MedusaConfig:
    """Return a small Medusa configuration."""
    values: dict[str, Any] = {"num_heads": 3, "num_layers": 1}
    return MedusaConfig(**(values | {"hidden_size": HIDDEN, "vocab_size": VOCAB} | changes))


def draft_config(draft_vocab_size: int = VOCAB // 2, **changes: Any) -> DraftConfig:
    """Return the configuration of a small draft model of two layers; `changes` are its class's."""
    sizes = {"vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": 12}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config: Any = AutoConfig.for_model("llama", **(sizes | changes))
    return describe_draft(config, draft_vocab_size)


def random_tensors(
    config: HeadConfig, dtype: torch.dtype = torch.float32, seed: int = 0
) -> dict[str, Tensor]:
    """Return tensors for a configuration; the ids drafted are a random share of the target's."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.randn(shape, generator=generator).to(dtype)
        for name, shape in expected_shapes(config).items()
    }
    if "d2t" in tensors:
        size, vocab = len(tensors["d2t"]), len(tensors["t2d"])
        ids = torch.randperm(vocab, generator=generator)[:size].sort().values
        tensors["d2t"] = ids - torch.arange(size)
        tensors["t2d"] = torch.zeros(vocab, dtype=torch.bool).index_fill(0, ids, True)
    if TOKEN_IDS in tensors:
        ids = torch.randperm(VOCAB, generator=generator)[: len(tensors[TOKEN_IDS])]
        tensors[TOKEN_IDS] = ids.sort().values
    return tensors


def random_head(
    config: HeadConfig,
    dtype: torch.dtype = torch.float32,
    target: str | None = "org/target",
) -> Checkpoint:
    """Return a head of random numbers."""
    if isinstance(config, MedusaConfig):
        target = config.base_model
    return Checkpoint(config=config, tensors=random_tensors(config, dtype), target=target)


@st.composite
def eagle_configs(draw: st.DrawFn, version: int, *, is_plain: bool = False) -> EagleConfig:
    """Draw an EAGLE configuration; a plain one has nothing that the original code does not know."""
    width, groups = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    owns_embeddings = draw(st.booleans())
    changes: dict[str, Any] = {
        "head_dim": 2 * width,
        "num_attention_heads": groups * draw(st.integers(1, 2)),
        "num_key_value_heads": groups,
        "intermediate_size": draw(st.integers(1, 9)),
        "rms_norm_eps": draw(st.sampled_from([1e-5, 1e-6])),
        "rope_parameters": draw(st.sampled_from(ROPES)),
        "owns_embeddings": owns_embeddings,
    }
    if version == 1:
        changes |= {"fc_bias": draw(st.booleans()), "num_layers": draw(st.integers(1, 2))}
        return eagle_config(1, **changes)
    layers = st.lists(st.integers(0, 9), min_size=3, max_size=3).map(tuple)
    changes |= {
        "draft_vocab_size": draw(st.sampled_from([1, 5, VOCAB])),
        "feature_layers": draw(st.one_of(st.none(), layers)),
        "target_hidden_size": draw(st.integers(1, 9)) if owns_embeddings else HIDDEN,
    }
    if not is_plain:
        changes |= {name: draw(st.booleans()) for name in ("norm_before_residual", "norm_output")}
        changes |= {name: draw(st.booleans()) for name in ("attention_bias", "mlp_bias")}
        norm = draw(st.sampled_from(["norm_before_fc", "fc_norm", "norm_output"]))
        changes |= {norm: True, "num_layers": draw(st.integers(1, 2))}
    return eagle_config(3, **changes)


ROPES: list[dict[str, Any]] = [
    {"rope_type": "default", "rope_theta": 10000.0},
    {"rope_type": "default", "rope_theta": 500000.0},
    {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
    {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
]


def write_folder(
    folder: Path, config: dict[str, Any], tensors: dict[str, Tensor], name: str
) -> Path:
    """Write a folder with a configuration and one file of tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if name.endswith(".safetensors"):
        save_file(tensors, folder / name)
    else:
        torch.save(tensors, folder / name)
    return folder


def same_tensors(ours: Checkpoint, theirs: Checkpoint) -> bool:
    """Whether two heads have the same tensors: names, types and every bit."""
    first, second = ours.tensors, theirs.tensors
    return first.keys() == second.keys() and all(
        first[name].dtype == second[name].dtype and torch.equal(first[name], second[name])
        for name in first
    )
