"""A target parted at a layer says what it says whole, and computes no row of a layer twice."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.errors import OptionError, UnsupportedModelError
from outrider.targets.base import NORMED, Rows
from outrider.targets.features import decoder_layers
from outrider.targets.graphed import GraphedPasses
from outrider.targets.layer_range import LayerRange
from outrider.targets.transformers import TransformersTarget
from outrider.types import DraftTree
from support.tiny import ARCHITECTURES, random_ids, tiny_model

LAYERS = 3
TEXT = random_ids(40, 8)
BRANCHING = DraftTree((7, 9, 7, 3, 4, 9), (-1, -1, 0, 1, 2, 2))
CHAIN_THEN_BRANCHES = DraftTree((*TEXT[12:15], 3, 4, 9), (-1, 0, 1, 1, 3, -1))
MORE: dict[str, dict[str, Any]] = {
    "gemma3_text": {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
}


def model_of(architecture: str = "llama", **options: Any) -> PreTrainedModel:
    return tiny_model(
        architecture, num_hidden_layers=LAYERS, **(MORE.get(architecture, {}) | options)
    )


def small_model(dtype: torch.dtype, architecture: str = "llama") -> PreTrainedModel:
    """Return a model of two layers in a dtype that passes are compiled for."""
    return tiny_model(architecture, dtype=dtype, scale=2.0, max_position_embeddings=1024)


def graphed_target(model: PreTrainedModel) -> TransformersTarget:
    target = TransformersTarget(model)
    target._passes = GraphedPasses(model, target._cache, target.device)
    return target


TARGETS: dict[str, Callable[[PreTrainedModel], TransformersTarget]] = {
    "eager": TransformersTarget,
    "invariant": lambda model: TransformersTarget(model, numerics="invariant"),
    "graphed": graphed_target,
    "compiled": lambda model: TransformersTarget(model, compile=True),
}
targets = pytest.mark.parametrize("make", TARGETS.values(), ids=TARGETS.keys())


@pytest.fixture(scope="module")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(cache_folder))


@contextmanager
def rows_computed(model: PreTrainedModel) -> Iterator[Counter[int]]:
    """Count the rows that each layer computes in the body, those it only hands on apart."""
    counts: Counter[int] = Counter()

    def count(layer: int) -> Callable[..., None]:
        def hook(_: object, args: tuple[Tensor, ...]) -> None:
            counts[layer] += args[0].shape[0] * args[0].shape[1]

        return hook

    inside: list[Any] = [layer.mlp for layer in decoder_layers(model)]
    handles = [mlp.register_forward_pre_hook(count(i)) for i, mlp in enumerate(inside)]
    try:
        yield counts
    finally:
        for handle in handles:
            handle.remove()


def whole_logits(target: TransformersTarget, context: tuple[int, ...], tree: DraftTree) -> Tensor:
    """Return what one pass over all layers gives."""
    sequence = target.open(len(context) + len(tree))
    try:
        return target.score([Rows(sequence, context, tree)]).logits[0]
    finally:
        target.close(sequence)


def assert_near(found: Tensor, expected: Tensor) -> None:
    tolerance = 1e-6 if found.dtype == torch.float64 else 2e-4
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


# -- what is said ---------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [1, 2])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_first_and_later_layers_together_say_what_the_whole_model_says(
    architecture: str, layer: int
) -> None:
    target = TransformersTarget(model_of(architecture))
    early = target.exit_at(layer)
    sequence = target.open(64)
    for drafted in range(1, 7):
        early.draft([sequence], [TEXT[: 10 + drafted]])
    for tree in (DraftTree.chain(TEXT[11:17]), BRANCHING):
        early.draft([sequence], [TEXT[:14]])
        (found,) = target.score([Rows(sequence, TEXT[:11], tree)]).logits
        assert_near(found, whole_logits(target, TEXT[:11], tree))


@targets
@pytest.mark.parametrize("length", [1, 5, 30, 600])
def test_every_kind_of_pass_can_be_parted(
    make: Callable[[PreTrainedModel], TransformersTarget], length: int
) -> None:
    target = make(small_model(torch.float32))
    early = target.exit_at(1)
    context = random_ids(length, length)
    sequence = target.open(700)
    for count in range(4):
        early.draft([sequence], [(*context, *TEXT[:count])])
    tree = DraftTree.chain(TEXT[:5])
    (found,) = target.score([Rows(sequence, context, tree)]).logits
    assert_near(found, whole_logits(target, context, tree))
    target.commit(sequence, (0, 1))
    early.draft([sequence], [TEXT[2:3]])
    (found,) = target.score([Rows(sequence, TEXT[2:3], tree)]).logits
    assert_near(found, whole_logits(target, (*context, *TEXT[:3]), tree))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("kind", "architecture"),
    [("invariant", "llama"), ("invariant", "gemma2"), ("compiled", "llama")],
)
def test_a_parted_pass_has_the_bits_of_a_whole_one(
    kind: str, architecture: str, dtype: torch.dtype
) -> None:
    target = TARGETS[kind](small_model(dtype, architecture))
    early = target.exit_at(1)
    contexts = [random_ids(length, length) for length in (41, 3, 1, 90)]
    trees = [DraftTree.chain(TEXT[:count]) for count in (5, 0, 12, 1)]
    expected = [whole_logits(target, *each) for each in zip(contexts, trees, strict=True)]
    handles = [target.open(128) for _ in contexts]
    for count in range(5):
        drafting = [i for i, tree in enumerate(trees) if count <= len(tree)]
        unread = [(*contexts[i], *TEXT[:count]) for i in drafting]
        early.draft([handles[i] for i in drafting], unread)
    rows = [Rows(h, c, t) for h, c, t in zip(handles, contexts, trees, strict=True)]
    for found, one in zip(target.score(rows).logits, expected, strict=True):
        assert torch.equal(found, one)


@pytest.mark.parametrize("layer", [1, 2])
def test_early_logits_are_the_head_of_the_normed_state_that_leaves_the_layer(layer: int) -> None:
    model = model_of()
    parts: Any = model
    with torch.inference_mode():
        states = model(torch.tensor([TEXT]), output_hidden_states=True).hidden_states[layer]
        expected = parts.lm_head(parts.model.norm(states))[0]
    target = TransformersTarget(model)
    early = target.exit_at(layer)
    first, second = target.open(64), target.open(64)
    for count in (1, 2, 30, 40):
        found = early.draft([first, second], [TEXT[:count], TEXT[: count // 2 + 1]])
        assert_near(found, expected[[count - 1, count // 2]])


@pytest.mark.parametrize("architecture", ["llama", "mistral", "gpt2"])
def test_sequences_share_a_pass_whatever_is_held_of_each(architecture: str) -> None:
    """All of it, some, none, other tokens, more than is scored, and a tree that branches."""
    target = TransformersTarget(model_of(architecture))
    early = target.exit_at(2)
    contexts = [random_ids(length, length) for length in (11, 30, 2, 7, 9, 12, 21)]
    trees = [DraftTree.chain(TEXT[:count]) for count in (3, 4, 2, 5, 1)]
    trees += [BRANCHING, CHAIN_THEN_BRANCHES]
    handles = [target.open(64) for _ in contexts]
    drafts = [TEXT[:3], TEXT[:2], None, (*TEXT[:2], 1, 2), TEXT[:6], TEXT[:2], TEXT[12:15]]
    for i, draft in enumerate(drafts):
        if draft is not None:
            early.draft([handles[i]], [(*contexts[i], *draft)])
    rows = [Rows(h, c, t) for h, c, t in zip(handles, contexts, trees, strict=True)]
    for context, tree, found in zip(contexts, trees, target.score(rows).logits, strict=True):
        assert_near(found, whole_logits(target, context, tree))


def test_features_are_those_of_a_whole_pass() -> None:
    target = TransformersTarget(model_of())
    early = target.exit_at(2)
    drafted, fresh = target.open(64), target.open(64)
    early.draft([drafted], [TEXT[:9]])
    scored = target.score([Rows(drafted, TEXT[:12])], (1, 2, NORMED))
    plain = target.score([Rows(fresh, TEXT[:12])], (1, 2, NORMED))
    assert_near(scored.features[0], plain.features[0])
    assert_near(scored.logits[0], plain.logits[0])


def test_two_exits_of_one_target_take_nothing_from_each_other() -> None:
    target = TransformersTarget(model_of())
    one, two = target.exit_at(1), target.exit_at(2)
    handles = [target.open(64) for _ in range(2)]
    two.draft(handles, [TEXT[:9], TEXT[:5]])
    one.draft(handles[:1], [TEXT[:11]])
    two.draft(handles[1:], [TEXT[:6]])
    tree = DraftTree.chain(TEXT[9:14])
    for found in target.score([Rows(handle, TEXT[:9], tree) for handle in handles]).logits:
        assert_near(found, whole_logits(target, TEXT[:9], tree))


# -- what is computed -----------------------------------------------------------------------------


def test_a_draft_and_the_pass_that_verifies_it_compute_each_row_of_each_layer_once() -> None:
    model = model_of()
    target = TransformersTarget(model)
    early = target.exit_at(2)
    sequence = target.open(64)
    with rows_computed(model) as counts:
        for drafted in range(5):
            early.draft([sequence], [TEXT[: 9 + drafted]])
        assert counts == {0: 13, 1: 13}
        target.score([Rows(sequence, TEXT[:9], DraftTree.chain(TEXT[9:14]))])
        assert counts == {0: 14, 1: 14, 2: 14}
    target.commit(sequence, (0, 1))
    with rows_computed(model) as counts:
        early.draft([sequence], [TEXT[11:12]])
        early.draft([sequence], [TEXT[11:13]])
        target.score([Rows(sequence, TEXT[11:12], DraftTree.chain(TEXT[12:14]))])
        assert counts == {0: 3, 1: 3, 2: 3}


def test_rows_that_were_drafted_and_not_scored_cost_the_first_layers_alone() -> None:
    model = model_of()
    target = TransformersTarget(model)
    early = target.exit_at(1)
    sequence = target.open(64)
    with rows_computed(model) as counts:
        early.draft([sequence], [TEXT[:12]])
        target.score([Rows(sequence, TEXT[:9], DraftTree.chain(TEXT[9:10]))])
    assert counts == {0: 12, 1: 10, 2: 10}


def test_rows_held_of_other_tokens_are_computed_again_from_the_first_of_them_on() -> None:
    model = model_of()
    target = TransformersTarget(model)
    early = target.exit_at(1)
    sequence = target.open(64)
    with rows_computed(model) as counts:
        early.draft([sequence], [(*TEXT[:9], 1, 2)])
        early.draft([sequence], [(*TEXT[:10], 2)])
        assert counts == {0: 13}
        tree = DraftTree.chain((*TEXT[9:10], 3))
        (found,) = target.score([Rows(sequence, TEXT[:9], tree)]).logits
        assert counts == {0: 14, 1: 11, 2: 11}
    assert_near(found, whole_logits(target, TEXT[:9], tree))


@pytest.mark.parametrize(
    ("tree", "again"),
    [
        (DraftTree(TEXT[12:16], (-1, 0, 0, 2)), 2),
        (DraftTree(TEXT[12:16], (-1, -1, 0, 1)), 3),
        (CHAIN_THEN_BRANCHES, 3),
        (BRANCHING, 6),
    ],
)
def test_a_tree_computes_again_what_comes_after_its_first_branch(
    tree: DraftTree, again: int
) -> None:
    model = model_of()
    target = TransformersTarget(model)
    early = target.exit_at(2)
    sequence = target.open(64)
    with rows_computed(model) as counts:
        early.draft([sequence], [TEXT[:16]])
        (found,) = target.score([Rows(sequence, TEXT[:12], tree)]).logits
    assert counts == {0: 16 + again, 1: 16 + again, 2: 12 + len(tree)}
    assert_near(found, whole_logits(target, TEXT[:12], tree))


def test_the_head_is_not_computed_for_rows_that_only_catch_up() -> None:
    model = model_of()
    target = TransformersTarget(model)
    early = target.exit_at(2)
    sequence = target.open(64)
    seen: list[int] = []
    head: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    handle = head.register_forward_pre_hook(lambda _, args: seen.append(args[0].shape[1]))
    try:
        early.draft([sequence], [TEXT[:9]])
        target.score([Rows(sequence, TEXT[:9], DraftTree.chain(TEXT[9:11]))])
    finally:
        handle.remove()
    assert seen == [1, 0, 3]


# -- what is forgotten ----------------------------------------------------------------------------


@pytest.mark.parametrize("forget", ["commit", "crop", "score"])
def test_nothing_is_held_once_the_cache_has_changed(forget: str) -> None:
    target = TransformersTarget(model_of())
    early = target.exit_at(2)
    sequence = target.open(64)
    target.score([Rows(sequence, TEXT[:6])])
    early.draft([sequence], [TEXT[:9]])
    if forget == "commit":
        target.commit(sequence, ())
    elif forget == "crop":
        target.crop(sequence, 0)
    else:
        target.score([Rows(sequence, TEXT[:6])])
    assert target._sequences[sequence].held is None


def test_closing_a_sequence_costs_its_neighbours_no_right_answer() -> None:
    target = TransformersTarget(model_of())
    early = target.exit_at(2)
    handles = [target.open(64) for _ in range(3)]
    early.draft(handles, [TEXT[:9], TEXT[:12], TEXT[:14]])
    target.close(handles[0])
    context, tree = TEXT[:9], DraftTree.chain(TEXT[9:14])
    for _ in range(2):  # keys and values of this pass show in the next
        rows = [Rows(handle, context[-9:], tree) for handle in handles[1:]]
        for found in target.score(rows).logits:
            assert_near(found, whole_logits(target, context, tree))
        for handle in handles[1:]:
            target.commit(handle, range(len(tree)))
        context, tree = TEXT[:23], DraftTree.chain(TEXT[23:25])


def test_a_fault_in_a_draft_leaves_model_and_cache_as_they_were() -> None:
    """CACHE-7: layers, hooks and attention come back, and rows half overwritten are not held."""
    model = model_of()
    attention = model.config._attn_implementation
    target = TransformersTarget(model)
    early = target.exit_at(2)
    layers: Any = decoder_layers(model)
    sequence = target.open(64)
    early.draft([sequence], [TEXT[:12]])

    def fail(*_: object) -> None:
        raise MemoryError("in the middle of a layer")

    handle = layers[1].mlp.register_forward_pre_hook(fail)
    with pytest.raises(MemoryError):
        early.draft([sequence], [(*TEXT[:10], 1)])
    handle.remove()
    assert model.config._attn_implementation == attention
    for module in model.modules():
        assert "forward" not in vars(module)
        assert not module._forward_hooks and not module._forward_pre_hooks
    with rows_computed(model) as counts:
        (found,) = target.score([Rows(sequence, TEXT[:9], DraftTree.chain(TEXT[9:12]))]).logits
    assert counts == {0: 2, 1: 2, 2: 12}
    assert_near(found, whole_logits(target, TEXT[:9], DraftTree.chain(TEXT[9:12])))


def test_a_fault_while_scoring_leaves_nothing_held() -> None:
    model = model_of()
    target = TransformersTarget(model)
    early = target.exit_at(1)
    sequence = target.open(64)
    early.draft([sequence], [TEXT[:9]])
    with pytest.raises(IndexError):
        target.score([Rows(sequence, TEXT[:8], DraftTree.chain((10**6,)))])
    (found,) = target.score([Rows(sequence, TEXT[:9])]).logits
    assert_near(found, whole_logits(target, TEXT[:9], DraftTree()))


def test_a_forward_that_a_layer_has_of_its_own_comes_back() -> None:
    """Offloaded layers have one: it fetches their weights."""
    model = model_of()
    layers: Any = decoder_layers(model)
    own = layers[0].forward
    layers[0].forward = lambda *args, **kwargs: own(*args, **kwargs)
    kept = layers[0].forward
    with LayerRange(model, 1, 2).on(torch.zeros(1, 1, 32)):
        assert layers[0].forward is not kept
        assert "forward" not in vars(layers[1])
    assert layers[0].forward is kept
    assert "forward" not in vars(layers[2])


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [0, -1, 3, 40])
def test_a_layer_that_leaves_none_on_one_side_is_refused(layer: int) -> None:
    target = TransformersTarget(model_of())
    with pytest.raises(
        OptionError, match=rf"layer {layer}: .* 3 layers, so it must be from 1 to 2"
    ):
        target.exit_at(layer)


@pytest.mark.parametrize("is_lenient", [True, False])
def test_a_model_whose_layers_know_more_than_their_states_is_refused(is_lenient: bool) -> None:
    model = model_of()
    layers: Any = decoder_layers(model)
    noted: list[Tensor] = []

    def note(_: object, args: object, output: Tensor) -> None:
        noted.append(output)

    def add(_: object, args: object, output: Tensor) -> Tensor:
        return output if is_lenient and noted[-1].shape != output.shape else output + noted[-1]

    layers[1].mlp.register_forward_hook(note)
    layers[2].mlp.register_forward_hook(add)
    target = TransformersTarget(model)
    assert target.exit_at(1).layer == 1
    reason = "gives other logits when it is" if is_lenient else "cannot be"
    with pytest.raises(UnsupportedModelError, match=f"LlamaForCausalLM {reason} parted at layer 2"):
        target.exit_at(2)


def test_a_compiled_target_finds_its_parts_again_and_says_if_there_are_none(
    cache_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = small_model(torch.float32)
    caplog.set_level(logging.WARNING, logger="outrider")
    TransformersTarget(model, compile=True).exit_at(1)
    found = TransformersTarget(model, compile=None)
    invariant = TransformersTarget(model, compile=None, numerics="invariant")
    for target in (found, invariant):
        assert target.is_compiled
        target.exit_at(1)
    assert not caplog.records
    for part in cache_folder.glob("pass-*-layers-1-2-*"):
        shutil.rmtree(part)
    early = found.exit_at(1)
    (record,) = caplog.records
    assert record.getMessage() == (
        "passes over layers 0 to 0 and layers 1 to 1 run eagerly: "
        "they are not compiled; compile=True compiles them"
    )
    sequence = found.open(32)
    early.draft([sequence], [TEXT[:9]])
    (logits,) = found.score([Rows(sequence, TEXT[:10])]).logits
    assert_near(logits, whole_logits(found, TEXT[:10], DraftTree()))
    with pytest.raises(UnsupportedModelError, match="must be compiled where the whole ones are"):
        invariant.exit_at(1)
