from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from outrider.errors import LoadError, OptionError
from outrider.heads.config import MedusaConfig
from outrider.heads.medusa import MedusaHeads
from support.golden import MEDUSA
from support.seeded import medusa_tensors, normal

TWO_BLOCKS = MEDUSA["two_blocks"]
BORROWED = MEDUSA["output_of_the_target"]
HIDDEN = normal("features", 4, TWO_BLOCKS.hidden_size).double()


def load(config: MedusaConfig) -> MedusaHeads:
    return MedusaHeads.load(config, medusa_tensors(config)).double().requires_grad_(False)


def test_each_head_applies_its_own_blocks_in_turn_then_its_output() -> None:
    tensors = {name: value.double() for name, value in medusa_tensors(TWO_BLOCKS).items()}
    logits = load(TWO_BLOCKS)(HIDDEN)
    for head in range(TWO_BLOCKS.num_heads):
        rows = HIDDEN
        for block in range(2):
            name = f"heads.{head}.blocks.{block}"
            inner = rows @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]
            rows = rows + inner * inner.sigmoid()
        assert_close(logits[head], rows @ tensors[f"heads.{head}.output.weight"].T)


def test_heads_without_an_output_layer_use_the_targets() -> None:
    owner = load(replace(BORROWED, owns_output=True))
    layer = owner.heads[1].get_submodule("output")
    lent = load(BORROWED)(HIDDEN, layer)
    assert lent.shape == (BORROWED.num_heads, len(HIDDEN), BORROWED.vocab_size)
    assert_close(lent[1], owner(HIDDEN)[1])
    assert not torch.equal(lent[0], owner(HIDDEN)[0])
    with pytest.raises(OptionError, match="no output layer"):
        load(BORROWED)(HIDDEN)


@pytest.mark.parametrize("config", [TWO_BLOCKS, BORROWED])
def test_rows_side_by_side_are_those_of_each_alone(config: MedusaConfig) -> None:
    heads = load(config)
    layer = load(TWO_BLOCKS).heads[0].get_submodule("output")
    alone = [heads(row[None], layer) for row in HIDDEN]
    assert_close(heads(HIDDEN, layer), torch.cat(alone, dim=1))


@pytest.mark.parametrize("config", [TWO_BLOCKS, BORROWED])
def test_the_first_heads_alone_say_the_same(config: MedusaConfig) -> None:
    heads = load(config)
    layer = load(TWO_BLOCKS).heads[0].get_submodule("output")
    assert_close(heads(HIDDEN, layer, count=2), heads(HIDDEN, layer)[:2])
    for count in (0, config.num_heads + 1):
        with pytest.raises(OptionError, match=f"count is {count}, must be 1 to 3"):
            heads(HIDDEN, layer, count=count)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_heads_compute_in_the_type_they_are_cast_to(dtype: torch.dtype) -> None:
    assert load(TWO_BLOCKS).to(dtype)(HIDDEN.to(dtype)).dtype == dtype


def test_a_missing_tensor_is_refused_by_its_name() -> None:
    tensors = medusa_tensors(TWO_BLOCKS)
    for name in tensors:
        others = {other: tensor for other, tensor in tensors.items() if other != name}
        with pytest.raises(LoadError, match=rf"misses the tensor {name} \["):
            MedusaHeads.load(TWO_BLOCKS, others)


def test_more_heads_than_the_configuration_counts_are_refused() -> None:
    with pytest.raises(LoadError, match=r"no place for the tensor heads\.2\."):
        MedusaHeads.load(replace(TWO_BLOCKS, num_heads=2), medusa_tensors(TWO_BLOCKS))
