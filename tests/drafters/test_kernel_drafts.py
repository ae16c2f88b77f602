"""Heads beside a compiled target draft by kernels: their drafts, and the text they lead to."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from outrider.checkpoints.base import Checkpoint
from outrider.drafters import build_drafter
from outrider.drafters.base import DraftRequest
from outrider.drafters.spec import parse_spec
from outrider.heads.config import MedusaConfig
from outrider.heads.kernels import KernelBlock, find_leading
from outrider.sampling.noise import KeyedNoise
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.targets.kernels.layers import WholeLinear
from outrider.targets.loading import LoadedModel
from outrider.targets.transformers import TransformersTarget
from support.heads import eagle_config
from support.runs import assert_same, decode, make_request
from support.seeded import eagle_tensors, medusa_tensors, normal
from support.tiny import VOCAB, random_ids, tiny_model

EAGLE_1, EAGLE_3 = eagle_config(1), eagle_config(3)
MEDUSA = MedusaConfig(
    num_heads=3, num_layers=1, hidden_size=32, vocab_size=VOCAB, owns_output=False
)
CHECKPOINTS = {
    "eagle-1": Checkpoint(config=EAGLE_1, tensors=eagle_tensors(EAGLE_1)),
    "eagle-3": Checkpoint(config=EAGLE_3, tensors=eagle_tensors(EAGLE_3)),
    "medusa": Checkpoint(config=MEDUSA, tensors=medusa_tensors(MEDUSA)),
}
ANY_HEAD = pytest.mark.parametrize("head", CHECKPOINTS.values(), ids=CHECKPOINTS.keys())
TEXT = random_ids(40, 3)


def target_and_drafter(head: Checkpoint) -> tuple[TransformersTarget, Any]:
    target = TransformersTarget(tiny_model(dtype=torch.float32), compile=False)
    target.is_compiled = True  # as far as a drafter can tell
    loaded = LoadedModel(target.model, None, "org/target")
    return target, build_drafter(parse_spec(f"{head.kind}:x"), loaded, target, head=head)


def features(drafter: Any, count: int) -> Tensor:
    return normal("features", count, 32 * len(drafter.feature_layers))


def begun(drafter: Any, length: int, temperature: float = 0.0) -> Any:
    """Return the state of a request that has just read all but the last of so many tokens."""
    noise = KeyedDraftSampler(temperature, KeyedNoise(5), "match", vocab_size=VOCAB)
    state = drafter.begin(DraftRequest(TEXT[: length - 1], 256, noise))
    drafter.observe([state], [TEXT[length - 1 : length]], [features(drafter, length - 1)])
    return state


@ANY_HEAD
def test_a_compiled_target_has_its_heads_run_by_kernels(head: Checkpoint) -> None:
    target, drafter = target_and_drafter(head)
    module: Any = drafter._head if head.kind == "eagle" else drafter._heads
    kinds = {type(one) for one in module.modules()}
    assert torch.nn.Linear not in kinds
    assert (KernelBlock if head.kind == "eagle" else WholeLinear) in kinds
    assert head.kind != "eagle" or drafter._find is find_leading
    borrows = head.config is not EAGLE_3
    assert isinstance(drafter._output_layer, WholeLinear) == borrows
    model: Any = target.model
    assert isinstance(model.get_output_embeddings(), torch.nn.Linear)


@ANY_HEAD
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_requests_draft_together_what_they_draft_alone(
    head: Checkpoint, temperature: float
) -> None:
    _, drafter = target_and_drafter(head)
    lengths, budgets = (9, 40, 27), (3, 14, 20)
    states = [begun(drafter, length, temperature) for length in lengths]
    together = drafter.propose(states, budgets)
    for length, budget, tree in zip(lengths, budgets, together, strict=True):
        (alone,) = drafter.propose([begun(drafter, length, temperature)], [budget])
        assert len(tree) == budget
        assert (tree.tokens, tree.parents) == (alone.tokens, alone.parents)
        assert tree.chances == pytest.approx(alone.chances, rel=1e-4)


@pytest.mark.parametrize("head", [CHECKPOINTS["eagle-1"], CHECKPOINTS["eagle-3"]])
def test_drafts_do_not_depend_on_how_the_text_came_about(head: Checkpoint) -> None:
    _, drafter = target_and_drafter(head)
    (expected,) = drafter.propose([begun(drafter, 40)], [12])
    state = begun(drafter, 11)
    for first, last in ((11, 12), (12, 21), (21, 40)):
        drafter.propose([state], [7])
        drafter.observe([state], [TEXT[first:last]], [features(drafter, 39)[first - 1 : last - 1]])
    (found,) = drafter.propose([state], [12])
    assert (found.tokens, found.parents) == (expected.tokens, expected.parents)


@ANY_HEAD
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_that_of_the_target(head: Checkpoint, temperature: float) -> None:
    target, drafter = target_and_drafter(head)
    target.is_compiled = False
    request = make_request(TEXT[:12], max_new_tokens=24, temperature=temperature)
    found = decode(target, request, drafter, max_draft=6)
    assert found.stats.drafter_error is None and found.stats.proposed > 0
    assert_same(found, decode(target, request))
