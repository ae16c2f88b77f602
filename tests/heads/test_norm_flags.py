"""The flags of an EAGLE-3 head change its arithmetic, not its tensors: none may be ignored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from outrider.errors import LoadError
from outrider.heads.config import EagleConfig
from outrider.heads.eagle import EagleHead
from support.attending import CausalAttend
from support.golden import SPECULATORS
from support.seeded import eagle_tensors, normal

PLAIN = SPECULATORS["plain"]
FEATURES = normal("features", 6, PLAIN.num_features * PLAIN.target_hidden_size).double()


def load(config: EagleConfig) -> EagleHead:
    return EagleHead.load(config, eagle_tensors(config)).double()


def flagged(flag: str) -> EagleConfig:
    switch: dict[str, Any] = {flag: True}
    return replace(PLAIN, **switch)


def two_steps(config: EagleConfig) -> list[Tensor]:
    """Return the logits after a text, and after one step that goes on from it."""
    head, attend = load(config), CausalAttend()
    with torch.no_grad():
        first = head(head.embed(torch.arange(6)), head.fuse(FEATURES), torch.arange(6), attend)
        second = head(head.embed(torch.tensor([7])), first.state[-1:], torch.tensor([6]), attend)
        return [head.logits(one.output[-1]) for one in (first, second)]


def unit(rows: Tensor) -> Tensor:
    """Return rows of unit mean square."""
    return rows / (rows.pow(2).mean(dim=-1, keepdim=True) + PLAIN.rms_norm_eps).sqrt()


@pytest.mark.parametrize("flag", ["norm_before_residual", "norm_before_fc", "fc_norm"])
def test_a_norm_on_the_way_in_changes_every_step(flag: str) -> None:
    """TRAIN-7"""
    plain, changed = two_steps(PLAIN), two_steps(flagged(flag))
    for before, after in zip(plain, changed, strict=True):
        assert (before - after).abs().max() > 0.01


def test_a_norm_on_the_way_out_changes_what_the_next_step_reads() -> None:
    plain, changed = two_steps(PLAIN), two_steps(replace(PLAIN, norm_output=True))
    assert torch.equal(plain[0], changed[0])
    assert (plain[1] - changed[1]).abs().max() > 0.01


def test_one_norm_before_fc_spans_all_features() -> None:
    head = load(replace(PLAIN, norm_before_fc=True))
    assert head.input_norm is not None
    with torch.no_grad():
        expected = head.fc(unit(FEATURES) * head.input_norm.weight)
        assert_close(head.fuse(FEATURES), expected)


def test_fc_norm_norms_each_feature_by_itself() -> None:
    head = load(replace(PLAIN, fc_norm=True))
    weights = [head.get_parameter(f"fc_norm.{index}.weight") for index in range(3)]
    parts = FEATURES.chunk(3, dim=-1)
    with torch.no_grad():
        normed = [unit(part) * weight for part, weight in zip(parts, weights, strict=True)]
        assert_close(head.fuse(FEATURES), head.fc(torch.cat(normed, dim=-1)))


@pytest.mark.parametrize(
    ("flag", "tensor"), [("norm_before_fc", "input_norm.weight"), ("fc_norm", "fc_norm.2.weight")]
)
def test_a_norm_asked_for_must_be_there_and_one_that_is_there_asked_for(
    flag: str, tensor: str
) -> None:
    config = flagged(flag)
    tensors = eagle_tensors(config)
    norm = tensors.pop(tensor)
    with pytest.raises(LoadError, match=f"misses the tensor {tensor}"):
        EagleHead.load(config, tensors)
    with pytest.raises(LoadError, match=f"no place for the tensor {tensor}"):
        EagleHead.load(PLAIN, eagle_tensors(PLAIN) | {tensor: norm})
