"""Where caches go wrong: first and last positions, crops, errors, and texts beyond a limit."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from outrider.drafters.base import Drafter
from outrider.drafters.model import ModelDrafter
from outrider.drafters.ngram import NgramDrafter
from outrider.drafters.suffix import SuffixDrafter
from outrider.engine.engine import Engine
from outrider.errors import NumericsError
from outrider.targets.base import Rows
from outrider.targets.transformers import TransformersTarget
from outrider.trees.layout import depths
from outrider.types import DraftTree, Numerics
from support.runs import (
    assert_same,
    collect,
    decode,
    draft_model,
    make_request,
    shared_target,
)
from support.scripted import ScriptedDrafter, ScriptedTarget, oracle, random_trees
from support.tiny import VOCAB, greedy_ids, random_ids, shared_model, tiny_model


def with_branches(text: list[int], prompt: int, depth: int = 4) -> ScriptedDrafter:
    """Return a drafter whose trees hold the right chain, and a wrong sibling at each node of it."""

    def propose(context: tuple[int, ...], budget: int) -> DraftTree:
        start = len(context) - prompt
        tokens: list[int] = []
        parents: list[int] = []
        above = -1
        for right in text[start : start + min(depth, budget // 2)]:
            tokens += [(right + 1) % VOCAB, right]
            parents += [above, above]
            above = len(tokens) - 1
        return DraftTree(tuple(tokens), tuple(parents))

    return ScriptedDrafter(propose)


@pytest.mark.parametrize("kind", ["unrelated", "exact"])
def test_a_prompt_of_one_token_is_enough(kind: str) -> None:
    """CACHE-2."""
    request = make_request([10], max_new_tokens=40)
    found = decode(shared_target(), request, draft_model(kind), max_draft=5)
    assert_same(found, decode(shared_target(), request))
    assert list(found.token_ids) == greedy_ids(shared_model(), (10,), 40)


@pytest.mark.parametrize("kind", ["unrelated", "noisy"])
@pytest.mark.parametrize("architecture", ["mistral", "gemma3_text"])
def test_rejections_across_a_sliding_window_leave_no_trace(architecture: str, kind: str) -> None:
    """CACHE-4: the window is 8 tokens, the text several times that."""
    request = make_request(random_ids(5, 3), max_new_tokens=40)
    target = shared_target(architecture)
    found = decode(target, request, draft_model(kind, architecture), max_draft=4)
    assert_same(found, decode(target, request))
    assert found.stats.accepted < found.stats.proposed


def test_the_last_position_of_a_model_is_used_and_none_after_it() -> None:
    """CACHE-6, LIMIT-1: drafts are capped by the room that is left."""
    target = TransformersTarget(tiny_model(max_position_embeddings=60))
    prompt = random_ids(20, 1) * 2
    plain = decode(target, make_request(prompt, max_new_tokens=1000))
    assert (len(plain.token_ids), plain.finish_reason) == (20, "length")
    drafters: list[Drafter[Any]] = [
        NgramDrafter(min_ngram=1),
        SuffixDrafter(),
        random_trees(VOCAB),
        oracle(plain.token_ids, 40),
        draft_model("exact"),
    ]
    for drafter in drafters:
        for limit in (20, 1000):
            request = make_request(prompt, max_new_tokens=limit)
            assert_same(decode(target, request, drafter, max_draft=10), plain)


def test_nodes_too_deep_to_be_emitted_are_not_scored() -> None:
    """LIMIT-7: a tree near the end of the context."""
    target = ScriptedTarget.saying([5, 6], VOCAB, prompt=30)
    target.max_positions = 32
    deep = DraftTree((5, 6, 5, 6, 5), (-1, 0, 1, 2, 3))
    result = decode(
        target,
        make_request(random_ids(30), max_new_tokens=50),
        ScriptedDrafter(lambda _, budget: DraftTree.chain(deep.tokens[:budget])),
        max_draft=5,
    )
    assert (result.token_ids, result.finish_reason) == ((5, 6), "length")
    for rows in (rows for part in target.passes for rows in part):
        assert max([30 + d - 1 for d in depths(rows.tree)], default=0) <= 31


def test_a_model_is_as_before_after_a_processor_raised() -> None:
    """CACHE-7: an exception leaves model, target and drafter as they were."""
    calls = 0

    def fail_third(input_ids: Tensor, scores: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise RuntimeError("the caller's processor fails")
        return scores

    model = tiny_model()
    target, drafter = TransformersTarget(model), draft_model("exact")
    hooks = [len(module._forward_hooks) for module in model.modules()]
    request = make_request(random_ids(9), max_new_tokens=12)
    broken = make_request(random_ids(9), max_new_tokens=12, logits_processors=[fail_third])
    with pytest.raises(RuntimeError, match="processor fails"):
        collect(Engine(target, drafter), [request, broken])
    fresh = TransformersTarget(tiny_model())
    for kept in (None, drafter):
        assert_same(decode(target, request, kept), decode(fresh, request))
    assert [len(module._forward_hooks) for module in model.modules()] == hooks
    assert greedy_ids(model, random_ids(9), 12) == list(decode(fresh, request).token_ids)


def test_a_request_without_numbers_does_not_spoil_the_next() -> None:
    """CACHE-7: what a failed request left in the cache is never read again."""
    model = tiny_model()
    with torch.no_grad():
        model.get_submodule("model.embed_tokens").get_parameter("weight")[50] = math.nan
    target = TransformersTarget(model)
    request = make_request(range(9), max_new_tokens=5)
    plain = decode(target, request)
    assert 50 not in plain.token_ids
    with pytest.raises(NumericsError, match="bad: no token to choose at position 20"):
        decode(target, make_request([50] * 20, name="bad"))
    assert_same(decode(target, request), plain)


def test_a_tree_never_accepts_less_than_the_chain_in_it() -> None:
    """CACHE-8: the rows kept are those of the accepted path, in its order."""
    prompt = random_ids(9, 1)
    request = make_request(prompt, max_new_tokens=40, logprobs=1)
    plain = decode(shared_target(), request)
    text = list(plain.token_ids)
    chain = decode(shared_target(), request, oracle(text, len(prompt)), max_draft=4)
    tree = decode(shared_target(), request, with_branches(text, len(prompt)), max_draft=8)
    assert_same(chain, plain)
    assert_same(tree, plain)
    assert chain.stats.conditional_acceptance == tree.stats.conditional_acceptance == (1,) * 4


@pytest.mark.parametrize("numerics", ["fast", "invariant"])
@pytest.mark.parametrize("length", [505, 700])
def test_a_tree_below_a_long_prompt_is_seen_right(numerics: Numerics, length: int) -> None:
    """The prompt is read in chunks, and the tree crosses the border of a bucket of keys."""
    dtype = torch.float32 if numerics == "invariant" else torch.float64
    model = tiny_model(max_position_embeddings=1024, num_hidden_layers=1, dtype=dtype)
    target = TransformersTarget(model, numerics=numerics)
    request = make_request(random_ids(length), max_new_tokens=16)
    plain = decode(target, request)
    drafter = with_branches(list(plain.token_ids), length, depth=7)
    found = decode(target, request, drafter, max_draft=14)
    assert_same(found, plain)
    assert found.stats.conditional_acceptance == (1,) * 7


@pytest.mark.parametrize("batch", [1, 3])
def test_only_the_rows_that_are_verified_have_logits(batch: int) -> None:
    """LIMIT-3: of a long prompt the last row alone."""
    model = tiny_model(max_position_embeddings=1024, num_hidden_layers=1)
    head: nn.Module = model.get_submodule("lm_head")
    rows: list[int] = []
    head.register_forward_hook(lambda _, inputs, __: rows.append(inputs[0].shape[1]))
    target = TransformersTarget(model)
    rows.clear()
    wanted = [make_request(random_ids(530 + i, i), max_new_tokens=8) for i in range(batch)]
    collect(Engine(target, oracle([1] * 8, 530), max_draft=4, max_batch=batch), wanted)
    assert max(rows) <= 5


def _short_sighted() -> ModelDrafter:
    draft = TransformersTarget(tiny_model(max_position_embeddings=64))
    return ModelDrafter(draft, vocab_size=VOCAB, shared_ids=VOCAB)


def test_a_draft_model_rests_once_a_text_outgrows_it() -> None:
    """LIMIT-2, LIMIT-6: the long text is plain's, the next one is drafted as by a fresh model."""
    target = TransformersTarget(tiny_model())
    long = make_request(random_ids(30, 1), max_new_tokens=150)
    short = make_request(random_ids(9, 2), max_new_tokens=20)
    drafter = _short_sighted()
    found = decode(target, long, drafter)
    assert_same(found, decode(target, long))
    # All drafts were made up to position 64, and were right; nothing was proposed after it.
    assert found.stats.proposed == found.stats.accepted <= 34
    after = decode(target, short, drafter)
    assert_same(after, decode(target, short))
    assert after.stats.accepted == decode(target, short, _short_sighted()).stats.accepted > 0


def test_a_prompt_beyond_a_draft_model_is_decoded_without_it() -> None:
    """LIMIT-6."""
    target = TransformersTarget(tiny_model())
    request = make_request(random_ids(80, 1), max_new_tokens=12)
    found = decode(target, request, _short_sighted())
    assert_same(found, decode(target, request))
    assert (found.stats.proposed, found.stats.drafter_error) == (0, None)


@pytest.mark.parametrize("numerics", ["fast", "invariant"])
def test_no_pass_takes_more_of_the_cache_than_was_planned_when_requests_began(
    numerics: Numerics,
) -> None:
    """LIMIT-4: a row at the end of its text is padded to the width of a neighbour's draft."""
    dtype = torch.float32 if numerics == "invariant" else torch.float64
    model = tiny_model(max_position_embeddings=512, num_hidden_layers=1, dtype=dtype)
    target = TransformersTarget(model, numerics=numerics)
    full, wide = target.open(256), target.open(256)
    for sequence, length in ((full, 255), (wide, 200)):
        target.score([Rows(sequence, random_ids(length))])
        target.commit(sequence, ())
    before = target._cache.tensors[0].shape[2]  # slots may come, for trials of shapes
    target.score([Rows(full, (5,)), Rows(wide, (6,), DraftTree.chain([7] * 40))])
    assert target._cache.tensors[0].shape[2] == before
