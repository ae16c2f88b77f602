"""Draft models cut out of a target, and taught to say what it says."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from outrider.checkpoints.tensors import require_tensors
from outrider.errors import OptionError
from outrider.heads.config import DraftConfig
from outrider.heads.draft import TOKEN_IDS
from outrider.targets.features import decoder_layers
from outrider.training.base import Sample, batch_of
from outrider.training.draft import DraftLesson, depth_cut, to_be_trained
from outrider.training.teacher import Teacher
from support.tiny import VOCAB, random_ids, tiny_model


def test_all_layers_make_the_model_itself() -> None:
    model: Any = tiny_model(dtype=torch.float32, num_hidden_layers=3)
    copy: Any = to_be_trained(depth_cut(model, [0, 1, 2]), model)
    ids = torch.tensor([random_ids(9)])
    with torch.inference_mode():
        hidden = copy.model(ids).last_hidden_state
        assert torch.equal(hidden, model.model(ids).last_hidden_state)


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gemma3_text"])
def test_the_layers_that_are_named_are_kept_in_order(architecture: str) -> None:
    kinds = ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"]
    types: dict[str, Any] = {"layer_types": kinds} if architecture == "gemma3_text" else {}
    model = tiny_model(architecture, dtype=torch.float32, num_hidden_layers=4, **types)
    cut = depth_cut(model, [1, 3])
    kept = decoder_layers(to_be_trained(cut, model))
    for layer, place in ((1, 0), (3, 1)):
        ours = dict(kept[place].named_parameters())
        for name, parameter in decoder_layers(model)[layer].named_parameters():
            assert torch.equal(ours[name], parameter)
    assert isinstance(cut.config, DraftConfig)
    if types:
        assert cut.config.architecture["layer_types"] == [kinds[1], kinds[3]]


@pytest.mark.parametrize("layers", [[], [2, 1], [0, 0], [4], [-1]])
def test_layers_that_are_not_there_are_refused(layers: list[int]) -> None:
    with pytest.raises(OptionError, match="they must rise, within 0 to 3"):
        depth_cut(tiny_model(num_hidden_layers=4), layers)


def test_a_model_whose_class_does_not_follow_from_its_configuration_is_refused() -> None:
    model = tiny_model()
    model.add_module("more", torch.nn.Linear(3, 3))
    with pytest.raises(OptionError, match="LlamaForCausalLM cannot be cut: its parts are not"):
        depth_cut(model, [0])


@pytest.mark.parametrize("known", [None, torch.arange(0, VOCAB, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_learning_raises_acceptance_and_leaves_what_is_shared(
    dtype: torch.dtype, known: torch.Tensor | None
) -> None:
    model: Any = tiny_model(dtype=dtype, scale=3.0, num_hidden_layers=4)
    before = {name: part.clone() for name, part in model.state_dict().items()}
    draft = to_be_trained(depth_cut(model, [0, 3]), model)
    lesson = DraftLesson(draft, Teacher(model, (), known))
    batch = batch_of([Sample(random_ids(24, seed), 4) for seed in range(8)])
    trained = list(draft.parameters())
    assert all(one.requires_grad and one.dtype == torch.float32 for one in trained)
    optimizer = torch.optim.AdamW(trained, lr=3e-3)
    first = lesson.marks(batch)
    for _ in range(50):
        optimizer.zero_grad()
        lesson.marks(batch).loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert lesson.marks(batch).alphas[0] > first.alphas[0]
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())
    assert all(one.grad is None for one in model.parameters())


@pytest.mark.parametrize("known", [None, torch.arange(0, VOCAB, 2)])
def test_what_was_learnt_is_written_without_what_is_shared(known: torch.Tensor | None) -> None:
    model = tiny_model(dtype=torch.float32, num_hidden_layers=4)
    draft = to_be_trained(depth_cut(model, [0, 3]), model)
    checkpoint = DraftLesson(draft, Teacher(model, (), known)).finished()
    require_tensors(checkpoint.config, checkpoint.tensors, "x")
    assert checkpoint.kind == "draft" and checkpoint.config.num_layers == 2
    assert not any("embed" in name or "lm_head" in name for name in checkpoint.tensors)
    assert isinstance(checkpoint.config, DraftConfig)
    assert checkpoint.config.draft_vocab_size == (VOCAB if known is None else VOCAB // 2)
    if known is not None:
        assert torch.equal(checkpoint.tensors[TOKEN_IDS], known)
    # The state that a run keeps holds no more than that.
    assert set(draft.state_dict()) == set(checkpoint.tensors) - {TOKEN_IDS}
