"""EAGLE drafts: what the head says, whatever it has drafted before, in as few passes as levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from outrider.drafters.base import DraftRequest
from outrider.drafters.eagle import EagleDrafter
from outrider.engine.engine import Engine
from outrider.engine.session import Session
from outrider.errors import OptionError
from outrider.sampling.noise import KeyedNoise
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.targets.base import Rows
from outrider.trees.layout import row_paths
from outrider.types import Rule
from support.attending import CausalAttend
from support.heads import eagle_drafter
from support.runs import assert_same, collect, decode, make_request, shared_target
from support.tiny import VOCAB, random_ids, shared_model

HEADS: dict[str, dict[str, Any]] = {
    "eagle-1": {"version": 1},
    "eagle-3": {"version": 3},
    "eagle-3 of two layers": {"version": 3, "num_layers": 2},
}
ANY_HEAD = pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
VERSIONS = pytest.mark.parametrize("version", [1, 3])
TEXT = random_ids(40, 3)


def sampler(temperature: float = 0.0, rule: Rule = "match") -> KeyedDraftSampler:
    return KeyedDraftSampler(temperature, KeyedNoise(5), rule, vocab_size=VOCAB)


def features_of(drafter: EagleDrafter, tokens: Sequence[int]) -> Tensor:
    """Return the features the head reads, at each of the tokens."""
    target = shared_target()
    sequence = target.open(len(tokens))
    try:
        rows = Rows(sequence, tuple(tokens))
        return target.score([rows], drafter.feature_layers).features[0]
    finally:
        target.close(sequence)


def begun(drafter: EagleDrafter, tokens: Sequence[int], **options: Any) -> Any:
    """Return the state of a request that has just read all but the last of the tokens."""
    state = drafter.begin(DraftRequest(tuple(tokens[:-1]), 256, sampler(**options)))
    drafter.observe([state], [tokens[-1:]], [features_of(drafter, tokens[:-1])])
    return state


def own_logits(drafter: EagleDrafter, tokens: Sequence[int], path: Sequence[int]) -> Tensor:
    """Return the logits after a drafted path, from all pairs read one by one from the start."""
    head = drafter._head
    attend = CausalAttend()
    features = features_of(drafter, tokens[:-1])
    with torch.inference_mode():
        hidden = head.fuse(features)
        embeddings = head.embed(torch.tensor(tokens[1:]), drafter._embeddings)
        output = head(embeddings, hidden, torch.arange(len(hidden)), attend)
        for step, token in enumerate(path):
            position = torch.tensor([len(hidden) + step])
            embedding = head.embed(torch.tensor([token]), drafter._embeddings)
            output = head(embedding, output.state[-1:], position, attend)
        found: Tensor = head.logits(output.output[-1:], drafter._output_layer)[0]
    return found


def target_tokens(drafter: EagleDrafter, columns: Tensor) -> list[int]:
    ids = drafter._head.target_ids
    found: list[int] = (columns if ids is None else ids[columns]).tolist()
    return found


@ANY_HEAD
def test_every_node_is_among_the_likeliest_after_its_path(head: dict[str, Any]) -> None:
    drafter = eagle_drafter(shared_model(), **head)
    (tree,) = drafter.propose([begun(drafter, TEXT)], [20])
    assert len(tree) == 20
    paths = row_paths(tree)
    for node, parent in enumerate(tree.parents):
        logits = own_logits(drafter, TEXT, paths[parent + 1])
        assert tree.tokens[node] in target_tokens(drafter, logits.topk(4).indices)


@VERSIONS
def test_chances_are_the_products_of_the_heads_own(version: int) -> None:
    drafter = eagle_drafter(shared_model(), version)
    (tree,) = drafter.propose([begun(drafter, TEXT)], [12])
    assert tree.chances is not None
    for node, parent in enumerate(tree.parents):
        logits = own_logits(drafter, TEXT, row_paths(tree)[parent + 1])
        law = dict(
            zip(
                target_tokens(drafter, torch.arange(len(logits))),
                logits.softmax(-1).tolist(),
                strict=True,
            )
        )
        above = 1.0 if parent < 0 else tree.chances[parent]
        assert tree.chances[node] == pytest.approx(above * law[tree.tokens[node]], rel=1e-5)


@ANY_HEAD
@pytest.mark.parametrize("cuts", [[10], [10, 11, 12], [5, 20, 21, 30, 39]])
def test_drafts_do_not_depend_on_how_the_text_came_about(
    head: dict[str, Any], cuts: list[int]
) -> None:
    """DRAFT-5 and ADAPT-6: nothing of earlier drafts is left, and nothing is missing."""
    drafter = eagle_drafter(shared_model(), **head)
    (expected,) = drafter.propose([begun(drafter, TEXT)], [10])
    state = drafter.begin(DraftRequest(TEXT[: cuts[0]], 256, sampler()))
    features = features_of(drafter, TEXT[:-1])
    read, known = 0, cuts[0]
    for end in (*(cut + 1 for cut in cuts), len(TEXT)):
        if end > known:
            drafter.observe([state], [TEXT[known:end]], [features[read : end - 1]])
            read, known = end - 1, end
            if end != len(TEXT) and end % 3:
                drafter.propose([state], [7])
    (found,) = drafter.propose([state], [10])
    assert (found.tokens, found.parents) == (expected.tokens, expected.parents)


@VERSIONS
def test_requests_draft_together_what_they_draft_alone(version: int) -> None:
    drafter = eagle_drafter(shared_model(), version)
    texts = [TEXT[:9], TEXT, TEXT[3:30]]
    budgets = [3, 14, 0]
    together = drafter.propose([begun(drafter, text) for text in texts], budgets)
    for text, budget, tree in zip(texts, budgets, together, strict=True):
        (alone,) = drafter.propose([begun(drafter, text)], [budget])
        assert (tree.tokens, tree.parents) == (alone.tokens, alone.parents)


def test_all_requests_share_the_passes_of_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = eagle_drafter(shared_model())
    states = [begun(drafter, TEXT[:length]) for length in (9, 30, 40)]
    passes: list[int] = []
    forward = type(drafter._head).forward

    def counted(self: Any, embeddings: Tensor, *rest: Any) -> Any:
        passes.append(len(embeddings))
        return forward(self, embeddings, *rest)

    monkeypatch.setattr(type(drafter._head), "forward", counted)
    drafter.propose(states, [16, 16, 16])
    assert 1 < len(passes) <= drafter.steps(16)
    assert passes[0] == 8 + 29 + 39  # every pair of feature and token, once


@VERSIONS
def test_long_prompts_are_read_in_parts(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = eagle_drafter(shared_model(), version)
    (whole,) = drafter.propose([begun(drafter, TEXT)], [10])
    monkeypatch.setattr("outrider.drafters.eagle._PROMPT_ROWS", 7)
    (parts,) = drafter.propose([begun(drafter, TEXT)], [10])
    assert (parts.tokens, parts.parents) == (whole.tokens, whole.parents)


@pytest.mark.parametrize("rule", ["rejection", "traversal"])
def test_drawn_trees_keep_the_law_of_each_node(rule: Rule) -> None:
    drafter = eagle_drafter(shared_model())
    state = begun(drafter, TEXT, temperature=0.8, rule=rule)
    (tree,) = drafter.propose([state], [9])
    assert tree.q is not None
    assert tree.q.shape == (len(tree), VOCAB)
    ids = drafter._head.target_ids
    assert ids is not None
    for node, parent in enumerate(tree.parents):
        logits = own_logits(drafter, TEXT, row_paths(tree)[parent + 1])
        law = (logits / 0.8).softmax(-1)
        torch.testing.assert_close(tree.q[node][ids].double(), law, atol=1e-6, rtol=1e-4)
        assert float(tree.q[node].sum()) == pytest.approx(1, abs=1e-5)


def test_the_shape_of_drawn_trees_does_not_depend_on_what_is_drawn() -> None:
    """DIST-4"""
    drafter = eagle_drafter(shared_model())
    shapes = set()
    for seed in range(12):
        noise = KeyedDraftSampler(1.0, KeyedNoise(seed), "rejection", vocab_size=VOCAB)
        state = drafter.begin(DraftRequest(TEXT[:-1], 256, noise))
        drafter.observe([state], [TEXT[-1:]], [features_of(drafter, TEXT[:-1])])
        (tree,) = drafter.propose([state], [11])
        shapes.add(tree.parents)
    assert len(shapes) == 1


def test_a_head_of_width_1_drafts_chains_as_long_as_asked() -> None:
    drafter = eagle_drafter(shared_model(), width=1)
    (tree,) = drafter.propose([begun(drafter, TEXT)], [9])
    assert tree.is_chain
    assert len(tree) == drafter.steps(9) == 9


def test_a_node_is_chosen_with_the_targets_own_noise_at_its_position() -> None:
    drafter = eagle_drafter(shared_model())
    (tree,) = drafter.propose([begun(drafter, TEXT, temperature=1.0)], [12])
    paths = row_paths(tree)
    leaders = {parent: node for node, parent in reversed(list(enumerate(tree.parents)))}
    for parent, node in leaders.items():
        logits = own_logits(drafter, TEXT, paths[parent + 1])
        scores = torch.full((VOCAB,), -torch.inf, dtype=logits.dtype)
        scores[target_tokens(drafter, torch.arange(len(logits)))] = logits
        token, _ = sampler(1.0).draw(scores, len(TEXT) + len(paths[parent + 1]))
        assert tree.tokens[node] == token


def test_nothing_is_drafted_before_the_first_features() -> None:
    drafter = eagle_drafter(shared_model())
    state = drafter.begin(DraftRequest(TEXT, 256, sampler()))
    (tree,) = drafter.propose([state], [5])
    assert not len(tree)


def test_a_head_rests_beyond_its_positions_and_the_text_goes_on() -> None:
    """LIMIT-2 and LIMIT-6"""
    prompt = random_ids(20)
    request = make_request(prompt, max_new_tokens=40)
    expected = decode(shared_target(), request)
    drafter = eagle_drafter(shared_model(), max_position_embeddings=30)
    found = decode(shared_target(), request, drafter, max_draft=6)
    assert_same(found, expected)
    full = decode(shared_target(), request, eagle_drafter(shared_model()), max_draft=6)
    assert 0 < found.stats.proposed < full.stats.proposed
    (after,) = collect(Engine(shared_target(), drafter, max_draft=6), [make_request(prompt[:5])])
    assert after.stats.proposed > 0


@VERSIONS
def test_the_second_turn_of_a_session_says_what_a_cold_start_says(version: int) -> None:
    """CACHE-1: the head sees only what the second turn reads."""
    target = shared_target()
    drafter = eagle_drafter(shared_model(), version)
    with Session(target) as session:
        first = decode(target, make_request(TEXT[:12], session=session, max_new_tokens=8), drafter)
        prompt = (*TEXT[:12], *first.token_ids, *TEXT[20:26])
        found = decode(target, make_request(prompt, session=session, max_new_tokens=20), drafter)
        assert found.stats.reused_tokens > 0
        assert found.stats.proposed > 0
    assert_same(found, decode(target, make_request(prompt, max_new_tokens=20)))


def test_a_head_without_its_layers_is_refused() -> None:
    with pytest.raises(OptionError, match="does not say which layers it reads"):
        eagle_drafter(shared_model(), feature_layers=None)
