from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from outrider.errors import LoadError, OptionError, UnsupportedModelError
from outrider.heads.config import EagleConfig
from outrider.heads.eagle import EagleHead, EagleOutput
from outrider.heads.layers import Attend, RMSNorm
from support.attending import CausalAttend, SideBySide
from support.golden import DRAFTED, EAGLE, SPECULATORS, VOCAB
from support.seeded import eagle_tensors, normal

EAGLE1 = EAGLE["eagle1_two_layers_shared_keys"]
EAGLE3 = SPECULATORS["all_flags_two_layers"]
VERSIONS = pytest.mark.parametrize("config", [EAGLE1, EAGLE3], ids=["eagle1", "eagle3"])


def load(config: EagleConfig, dtype: torch.dtype = torch.float64) -> EagleHead:
    return EagleHead.load(config, eagle_tensors(config)).to(dtype)


def run(
    head: EagleHead, attend: Attend, rows: Sequence[int], first: Sequence[int] | None = None
) -> EagleOutput:
    """Run rows whose tokens and features follow from their numbers, `first` by default."""
    dtype = head.fc.weight.dtype
    numbers = torch.tensor(rows)
    width = head.config.num_features * head.config.target_hidden_size
    features = normal("features", 20, width).to(dtype)[numbers]
    positions = numbers if first is None else torch.tensor(first)
    with torch.no_grad():
        output: EagleOutput = head(
            head.embed(numbers % VOCAB), head.fuse(features), positions, attend
        )
        return output


@VERSIONS
def test_rows_of_several_requests_side_by_side_are_those_of_each_alone(config: EagleConfig) -> None:
    head = load(config)
    alone = [run(head, CausalAttend(), range(0, 4)), run(head, CausalAttend(), range(9, 16))]
    both = SideBySide([CausalAttend(), CausalAttend()], [4, 7])
    together = run(head, both, [*range(0, 4), *range(9, 16)])
    assert_close(together.state, torch.cat([one.state for one in alone]))
    assert_close(together.output, torch.cat([one.output for one in alone]))


@VERSIONS
def test_a_text_read_in_pieces_gives_what_it_gives_at_once(config: EagleConfig) -> None:
    head = load(config)
    whole = run(head, CausalAttend(), range(8))
    attend = CausalAttend()
    pieces = [run(head, attend, piece) for piece in (range(3), [3], range(4, 8))]
    assert_close(torch.cat([piece.state for piece in pieces]), whole.state)


@VERSIONS
def test_only_the_distance_between_positions_counts(config: EagleConfig) -> None:
    head = load(config)
    here = run(head, CausalAttend(), range(6)).state
    further = run(head, CausalAttend(), range(6), range(1, 7)).state
    wider = run(head, CausalAttend(), range(6), range(0, 12, 2)).state
    assert_close(here, further, rtol=0, atol=1e-5)  # angles are float32
    assert (here - wider).abs().max() > 1e-3


@VERSIONS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_head_computes_in_the_type_it_is_cast_to(config: EagleConfig, dtype: torch.dtype) -> None:
    head = load(config, dtype)
    given = run(head, CausalAttend(), range(6))
    exact = run(load(config), CausalAttend(), range(6))
    assert given.state.dtype == given.output.dtype == dtype
    error = (given.state.double() - exact.state).abs().max() / exact.state.abs().max()
    assert error < 8 * torch.finfo(dtype).eps


@VERSIONS
def test_a_cast_leaves_angles_and_vocabulary_maps_exact(config: EagleConfig) -> None:
    head, narrow = load(config, torch.float32), load(config, torch.bfloat16)
    for name, buffer in head.named_buffers():
        assert torch.equal(buffer, narrow.get_buffer(name)), name
        assert narrow.get_buffer(name).dtype == buffer.dtype, name


def test_a_norm_in_float64_is_not_rounded_to_float32() -> None:
    rows = normal("rows", 3, 8).double()
    expected = rows / (rows.pow(2).mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    assert_close(RMSNorm(8, 1e-5).double()(rows), expected, rtol=1e-14, atol=0)


@VERSIONS
def test_training_mode_changes_nothing(config: EagleConfig) -> None:
    head = load(config)
    trained = run(head.train(), CausalAttend(), range(6))
    assert torch.equal(trained.state, run(head.eval(), CausalAttend(), range(6)).state)


@VERSIONS
def test_a_missing_tensor_is_refused_by_its_name(config: EagleConfig) -> None:
    tensors = eagle_tensors(config)
    for name in tensors:
        others = {other: tensor for other, tensor in tensors.items() if other != name}
        with pytest.raises(LoadError, match=rf"misses the tensor {name} \["):
            EagleHead.load(config, others)


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("layers.9.mlp.up_proj.weight", torch.ones(2), "no place for the tensor layers.9"),
        ("fc.weight", torch.ones(32, 64), r"fc.weight of shape \[32, 64\], \[32, 96\] is expected"),
        ("norm.weight", torch.ones(32, dtype=torch.int8), "norm.weight in torch.int8, floating"),
        ("d2t", torch.zeros(DRAFTED), "d2t in torch.float32, whole"),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused_by_its_name(
    name: str, tensor: Tensor, message: str
) -> None:
    with pytest.raises(LoadError, match=message):
        EagleHead.load(EAGLE3, eagle_tensors(EAGLE3) | {name: tensor})


def test_loading_copies_no_weights() -> None:
    tensors = eagle_tensors(EAGLE3)
    head = EagleHead.load(EAGLE3, tensors)
    assert head.fc.weight.data_ptr() == tensors["fc.weight"].data_ptr()
    assert not any(tensor.is_meta for tensor in (*head.parameters(), *head.buffers()))


def test_loading_draws_no_random_numbers() -> None:
    before = torch.get_rng_state()
    load(EAGLE3)
    assert torch.equal(torch.get_rng_state(), before)


def with_maps(d2t: Sequence[int], marked: Sequence[int]) -> EagleHead:
    config = replace(EAGLE3, draft_vocab_size=4)
    t2d = torch.zeros(VOCAB, dtype=torch.uint8)
    t2d[list(marked)] = 1
    maps = {"d2t": torch.tensor(d2t, dtype=torch.int32), "t2d": t2d}
    return EagleHead.load(config, eagle_tensors(config) | maps)


def test_a_draft_id_stands_for_the_target_id_its_offset_leads_to() -> None:
    head = with_maps([0, 0, 3, 5], [0, 1, 5, 8])
    assert head.target_ids is not None
    assert head.target_ids.tolist() == [0, 1, 5, 8]


def test_vocabulary_maps_are_kept_in_one_type_whatever_a_file_holds() -> None:
    maps = with_maps([0, 0, 3, 5], [0, 1, 5, 8])
    assert (maps.get_buffer("d2t").dtype, maps.get_buffer("t2d").dtype) == (torch.long, torch.bool)


def test_a_head_of_the_full_vocabulary_maps_no_ids() -> None:
    assert load(EAGLE["eagle3_full_vocabulary"]).target_ids is None


@pytest.mark.parametrize(
    ("d2t", "marked", "message"),
    [
        ([0, 0, 3, 5], [0, 1, 5, 8, 9], "t2d marks 5 token ids, but the head drafts 4"),
        ([0, 1, 5, 8], [0, 1, 5, 8], "t2d and d2t disagree about token id 1"),  # read as absolute
        ([0, 0, -1, 5], [0, 1, 5, 8], "t2d and d2t disagree about token id 5"),  # 1 drafted twice
        ([0, 0, 3, 50], [0, 1, 5, 8], "t2d and d2t disagree about token id 8"),  # no such id
    ],
)
def test_vocabulary_maps_that_contradict_each_other_are_refused(
    d2t: list[int], marked: list[int], message: str
) -> None:
    with pytest.raises(LoadError, match=message):
        with_maps(d2t, marked)


def test_the_target_lends_what_a_head_does_not_own() -> None:
    owner = load(EAGLE["eagle3_full_vocabulary"])
    config = replace(owner.config, owns_embeddings=False, owns_head=False)
    borrower = load(config)
    ids, rows = torch.arange(VOCAB), normal("rows", 3, config.hidden_size).double()
    assert torch.equal(borrower.embed(ids, owner.embed_tokens), owner.embed(ids))
    assert torch.equal(borrower.logits(rows, owner.lm_head), owner.logits(rows))
    with pytest.raises(OptionError, match="no embeddings"):
        borrower.embed(ids)
    with pytest.raises(OptionError, match="no output layer"):
        borrower.logits(rows)


def test_eagle1_takes_features_as_they_are_and_draws_from_its_state() -> None:
    head = load(EAGLE1)
    features = normal("features", 3, EAGLE1.hidden_size).double()
    assert head.fuse(features) is features
    given = run(head, CausalAttend(), range(3))
    assert given.state is given.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rope_parameters": {"rope_type": "spiral"}}, "rope type spiral is unknown"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "low_freq_factor"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "a part of each attention head"),
        ({"hidden_act": "sparkle"}, "activation sparkle"),
        ({"head_dim": 7}, "head_dim 7 is odd"),
    ],
)
def test_a_head_that_cannot_be_computed_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        EagleHead(replace(EAGLE3, **change))
