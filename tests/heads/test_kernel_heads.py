"""Heads by our own operators against the modules they replace."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from outrider.drafters.head_cache import HeadAttention, HeadCache, HeadRows
from outrider.heads.config import EagleConfig
from outrider.heads.eagle import EagleHead
from outrider.heads.kernels import KernelBlock, lent_layer, run_by_kernels
from outrider.heads.medusa import MedusaHeads
from outrider.targets.int8 import Int8Linear, quantize_rows
from outrider.targets.kernels.layers import KernelLinear, WholeLinear
from support.golden import EAGLE, MEDUSA, SPECULATORS, VOCAB
from support.rounding import short
from support.seeded import eagle_tensors, medusa_tensors, normal

MOST_ERROR = 0.06
"""Of the size of a state: rounding to eight bits, in heads so small that little averages out."""

# Three rows of a draft below a prompt, then two below the second of them.
LEVELS = ((0b001, 0b010, 0b100), (0b01010, 0b10010))
PROMPT = 6


def loaded(config: EagleConfig) -> EagleHead:
    return EagleHead.load(config, eagle_tensors(config)).requires_grad_(False)


def by_kernels(head: EagleHead) -> EagleHead:
    replaced = copy.deepcopy(head)
    run_by_kernels(replaced)
    return replaced


class Reader:
    """A head that reads requests which differ in their tokens, each with a cache of its own."""

    def __init__(self, head: EagleHead, requests: Sequence[int]) -> None:
        self.head = head
        self.requests = requests
        self.caches = [HeadCache() for _ in requests]

    def read(self, count: int, position: int, branches: Sequence[int] | None = None) -> Tensor:
        """Let the head read `count` rows of each request; return their states [R, H]."""
        parts = [HeadRows(cache, count, PROMPT, branches) for cache in self.caches]
        attention = HeadAttention(parts)
        firsts = [r + cache.length for r, cache in zip(self.requests, self.caches, strict=True)]
        rows = [row for first in firsts for row in range(first, first + count)]
        width = self.head.config.num_features * self.head.config.target_hidden_size
        features = normal("features", 40, width)[rows]
        steps = torch.arange(count) if branches is None else torch.zeros(count, dtype=torch.long)
        positions = (steps + position).repeat(len(parts))
        embeddings = self.head.embed(torch.tensor(rows) % VOCAB)
        output = self.head(embeddings, self.head.fuse(features), positions, attention)
        attention.commit()
        state: Tensor = output.state
        return state

    def grow(self) -> list[Tensor]:
        """Read a prompt, then a draft level by level; return the states of each pass."""
        states = [self.read(PROMPT, 0)]
        for depth, branches in enumerate(LEVELS):
            states.append(self.read(len(branches), PROMPT + depth, branches))
        return states


class Rounded(nn.Module):
    """A linear layer in whole numbers, as the operators have it, by PyTorch's own arithmetic."""

    def __init__(self, layer: nn.Linear, *, rounds_rows: bool) -> None:
        super().__init__()
        self.weight, self._scale = quantize_rows(layer.weight)
        self._bias: Tensor | None = layer.bias
        self._rounds_rows = rounds_rows

    def forward(self, x: Tensor) -> Tensor:
        scale = x.abs().amax(-1, keepdim=True) / 127
        rows = (x / scale).round() * scale if self._rounds_rows else short(x).float()
        y: Tensor = rows @ (self.weight.float() * self._scale[:, None]).T
        return y if self._bias is None else y + self._bias


def by_rounded_products(head: EagleHead) -> EagleHead:
    """Return the head, but for its products: what enters `fc` keeps sixteen bits."""
    replaced = copy.deepcopy(head)
    for parent in list(replaced.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear):
                setattr(parent, name, Rounded(child, rounds_rows=name != "fc"))
    return replaced


def errors(found: Tensor, expected: Tensor) -> Tensor:
    """Return the distance of each row, as a part of its size."""
    distances: Tensor = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
    return distances


def error(found: Tensor, expected: Tensor) -> float:
    """Return the worst distance of a row, as a part of its size."""
    return float(errors(found, expected).max())


CONFIGS = {**EAGLE, **SPECULATORS}


@pytest.mark.parametrize("name", CONFIGS)
@torch.inference_mode()
def test_a_head_by_kernels_says_what_the_head_says(name: str) -> None:
    head = loaded(CONFIGS[name])
    replaced = by_kernels(head)
    assert sum(isinstance(one, KernelBlock) for one in replaced.modules()) == len(head.layers)
    for found, expected in zip(
        Reader(replaced, [3, 20]).grow(), Reader(head, [3, 20]).grow(), strict=True
    ):
        assert error(found, expected) < MOST_ERROR
        layer = nn.Linear(expected.shape[1], VOCAB)
        assert error(replaced.logits(found, layer), head.logits(expected, layer)) < MOST_ERROR


@pytest.mark.parametrize("name", CONFIGS)
@torch.inference_mode()
def test_a_head_by_kernels_is_the_head_but_for_rounded_products(name: str) -> None:
    """To the last bits in most rows: in a few a tie may be rounded the other way."""
    head = loaded(CONFIGS[name])
    found = torch.cat(Reader(by_kernels(head), [3, 20]).grow())
    expected = torch.cat(Reader(by_rounded_products(head), [3, 20]).grow())
    assert errors(found, expected).median() < 1e-5


@pytest.mark.parametrize("name", ["eagle1_two_layers_shared_keys", "all_flags_two_layers"])
@torch.inference_mode()
def test_requests_have_the_bits_side_by_side_that_they_have_alone(name: str) -> None:
    replaced = by_kernels(loaded(CONFIGS[name]))
    together = Reader(replaced, [3, 20]).grow()
    alone = [Reader(replaced, [request]).grow() for request in (3, 20)]
    for i, states in enumerate(together):
        assert torch.equal(states, torch.cat([each[i] for each in alone]))


@torch.inference_mode()
def test_a_row_of_a_draft_sees_its_branch_and_no_other() -> None:
    replaced = by_kernels(loaded(SPECULATORS["plain"]))
    states = []
    for others in (0b001, 0b100):
        reader = Reader(replaced, [3])
        reader.read(PROMPT, 0)
        reader.read(3, PROMPT, LEVELS[0])
        states.append(reader.read(2, PROMPT + 1, (0b01010, 0b10000 | others)))
    assert torch.equal(states[0][0], states[1][0])
    assert not torch.equal(states[0][1], states[1][1])


@pytest.mark.parametrize("kind", ["linear", "dynamic"])
@torch.inference_mode()
def test_positions_seen_late_are_turned_as_those_seen_at_once(kind: str) -> None:
    rope = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0}
    config = replace(SPECULATORS["plain"], rope_parameters=rope)
    head = loaded(config)
    replaced = by_kernels(head)
    for positions in (torch.arange(5), torch.tensor([700, 3, 0])):
        expected = head.rotary(positions, torch.zeros(1))
        found = replaced.rotary(positions, torch.zeros(1))
        for table, turned in ((found.cosine, expected.cosine), (found.sine, expected.sine)):
            assert torch.equal(table[found.lines], turned)


def test_a_head_of_another_activation_keeps_its_layers() -> None:
    config = replace(SPECULATORS["plain"], hidden_act="gelu")
    replaced = by_kernels(loaded(config))
    kinds = {type(one) for one in replaced.modules()}
    assert KernelLinear in kinds and not {KernelBlock, nn.Linear} & kinds


@pytest.mark.parametrize("name", MEDUSA)
@torch.inference_mode()
def test_medusa_heads_by_kernels_say_what_they_say(name: str) -> None:
    config = MEDUSA[name]
    heads = MedusaHeads.load(config, medusa_tensors(config))
    layer = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
    hidden = normal("features", 4, config.hidden_size)
    expected = heads(hidden, layer)
    run_by_kernels(heads)
    assert error(heads(hidden, lent_layer(layer, torch.float32)), expected) < MOST_ERROR


def test_a_plain_layer_that_is_lent_is_narrowed_and_another_is_given_rows_of_its_type() -> None:
    layer = nn.Linear(12, 20, bias=False)
    narrow: Any = Int8Linear(*quantize_rows(layer.weight), None)
    x = torch.randn(3, 12)
    with torch.inference_mode():
        for one in (layer, narrow):
            lent = lent_layer(one, torch.float32)
            assert isinstance(lent, WholeLinear)
            torch.testing.assert_close(lent(x), one(x), atol=0.05, rtol=0.05)
        other = nn.Sequential(copy.deepcopy(layer).bfloat16())
        found = lent_layer(other, torch.bfloat16)(x)
        assert torch.equal(found, other(x.bfloat16()))


@pytest.mark.parametrize("name", ["eagle1", "plain"])
@torch.inference_mode()
def test_a_head_by_kernels_computes_in_float32_whatever_type_it_came_in(name: str) -> None:
    head = loaded(CONFIGS[name]).bfloat16()
    replaced = by_kernels(head)
    assert (head.dtype, replaced.dtype) == (torch.bfloat16, torch.float32)
    assert replaced.embed_tokens is not None
    assert replaced.embed_tokens.weight.dtype == torch.bfloat16
