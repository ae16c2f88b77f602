"""A draft model's trees: the likeliest or the drawn children, and a cache that stays exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from outrider.drafters.base import DraftRequest
from outrider.drafters.model import ModelDrafter, ModelState
from outrider.errors import OptionError
from outrider.sampling.noise import KeyedNoise
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.trees.layout import ancestors, children, depths, row_paths
from outrider.trees.shape import depth_for, usual_shape
from outrider.types import Rule
from support.runs import assert_same, decode, draft_model, make_request, shared_target
from support.scripted import ScriptedTarget
from support.tiny import VOCAB, random_ids, shared_model

PROMPT = random_ids(9, 4)


def begin(
    drafter: ModelDrafter,
    prompt: tuple[int, ...] = PROMPT,
    *,
    temperature: float = 0.0,
    rule: Rule = "match",
) -> ModelState:
    sampler = KeyedDraftSampler(temperature, KeyedNoise(3), rule)
    return drafter.begin(DraftRequest(prompt, 200, sampler))


def wide(kind: str, width: int = 3) -> ModelDrafter:
    """Return a drafter of trees over the model of a drafter of chains."""
    return ModelDrafter(draft_model(kind)._model, vocab_size=VOCAB, shared_ids=VOCAB, width=width)


def laws_after(context: Sequence[int]) -> torch.Tensor:
    """Return what the shared model itself says after a context [V]."""
    model: Any = shared_model()
    with torch.inference_mode():
        logits: torch.Tensor = model(input_ids=torch.tensor([context]), use_cache=False).logits
    return logits[0, -1].softmax(-1)


@pytest.mark.parametrize("budget", [1, 2, 5, 9, 40])
def test_a_tree_holds_the_likeliest_children_with_the_models_own_chances(budget: int) -> None:
    drafter = wide("exact")
    state = begin(drafter)
    (tree,) = drafter.propose([state], [budget])
    drafter.end(state)
    assert 0 < len(tree) <= budget and tree.q is None and tree.chances is not None
    assert max(depths(tree)) <= drafter.steps(budget) == depth_for(budget)
    paths = row_paths(tree)
    for row, below in enumerate(children(tree)):
        law = laws_after((*PROMPT, *paths[row]))
        best = law.topk(len(below)).indices.tolist() if below else []
        assert [tree.tokens[node] for node in below] == best
        reached = 1.0 if row == 0 else tree.chances[row - 1]
        for node in below:
            expected = reached * float(law[tree.tokens[node]])
            assert tree.chances[node] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("width", [1, 3])
def test_requests_of_a_batch_draft_as_they_would_alone(width: int) -> None:
    drafter = wide("noisy", width)
    prompts, budgets = [random_ids(3 + 5 * i, i) for i in range(4)], [6, 0, 20, 1]
    states = [begin(drafter, prompt) for prompt in prompts]
    together = drafter.propose(states, budgets)
    for prompt, budget, tree in zip(prompts, budgets, together, strict=True):
        state = begin(drafter, prompt)
        (alone,) = drafter.propose([state], [budget])
        assert (alone.tokens, alone.parents) == (tree.tokens, tree.parents)
        assert alone.chances == pytest.approx(tree.chances)
        drafter.end(state)
    for state in states:
        drafter.end(state)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", ["exact", "noisy", "unrelated"])
def test_trees_never_change_the_text(kind: str, temperature: float) -> None:
    request = make_request(PROMPT, temperature=temperature, seed=5, max_new_tokens=60)
    found = decode(shared_target(), request, wide(kind), max_draft=12)
    assert_same(found, decode(shared_target(), request))
    assert found.stats.drafter_error is None
    if kind == "exact":
        assert found.stats.rounds <= 30  # the likeliest child is always right


@pytest.mark.parametrize("rule", ["rejection", "traversal"])
def test_trees_of_an_exact_copy_are_accepted_all_the_way_down(rule: Rule) -> None:
    """The first child is always right where both laws are one, so every round gets to a leaf."""
    request = make_request(PROMPT, temperature=1.0, max_new_tokens=60)
    found = decode(shared_target(), request, wide("exact"), rule=rule, max_draft=12)
    assert found.stats.drafter_error is None
    below = usual_shape(12, 3, depth_for(12)).children()
    depth, row = 0, 0
    while below[row]:
        depth, row = depth + 1, below[row][0] + 1
    # Where little room is left, trees are smaller, and less deep.
    assert found.stats.rounds <= 1 + 60 // (1 + depth)


@pytest.mark.parametrize("rule", ["rejection", "traversal"])
def test_the_shape_of_a_sampled_tree_does_not_depend_on_what_is_drawn(rule: Rule) -> None:
    """DIST-4, and DIST-3: each node carries the law it was drawn from."""
    drafter = wide("exact")
    seen = set()
    for seed in range(6):
        sampler = KeyedDraftSampler(0.7, KeyedNoise(seed), rule)
        state = drafter.begin(DraftRequest(PROMPT, 200, sampler))
        (tree,) = drafter.propose([state], [10])
        drafter.end(state)
        assert tree.parents == usual_shape(10, 3, depth_for(10)).parents
        assert tree.q is not None and tree.chances is None
        seen.add(tree.tokens)
        for row, below in enumerate(children(tree)):
            law = laws_after((*PROMPT, *row_paths(tree)[row])).log().div(0.7).softmax(-1)
            for node in below:
                torch.testing.assert_close(tree.q[node], law)
    assert len(seen) == 6


@pytest.mark.parametrize("rule", ["match", "rejection"])
@pytest.mark.parametrize("kind", ["noisy", "unrelated"])
def test_the_cache_is_the_committed_text_after_every_round_of_trees(kind: str, rule: Rule) -> None:
    """CACHE-3, CACHE-8: what was accepted stays, in the order of its path; all else is gone."""
    drafter = wide(kind)
    model = drafter._model
    state = begin(drafter, temperature=1.0, rule=rule)
    position, text = len(PROMPT), list(PROMPT)
    for step in range(8):
        (tree,) = drafter.propose([state], [9])
        # A path of the tree of varying length, and then a token of the target's own.
        leaf = (5 * step) % len(tree)
        path = [tree.tokens[node] for node in ancestors(tree)[leaf]][: step % 4]
        drafter.observe([state], [[*path, step]])
        text += [*path, step]
        position = len(text)
        assert tuple(state.tokens) == tuple(text)
        assert model.cached(state.sequence) < position
        fresh = begin(drafter, tuple(text))
        state.sampler, again = fresh.sampler, drafter.propose([fresh], [9])
        (found,) = drafter.propose([state], [9])
        assert (found.tokens, found.parents) == (again[0].tokens, again[0].parents)
        assert found.chances == pytest.approx(again[0].chances)
        drafter.observe([state], [()])
        state.sampler = begin(drafter, temperature=1.0, rule=rule).sampler
        drafter.end(fresh)
    drafter.end(state)


def test_accepted_nodes_that_were_read_are_not_read_again() -> None:
    """A round that accepts two levels leaves the token after them to read, and the last of them."""
    text = [5, 6, 7]
    model = ScriptedTarget(
        lambda context: [4.0 * len(context) * (t == text[len(context) % 3]) - t for t in range(8)],
        8,
    )
    drafter = ModelDrafter(model, vocab_size=8, shared_ids=8, width=2)
    state = begin(drafter, (1, 2, 3))
    drafter.propose([state], [7])
    drafter.observe([state], [[5, 6, 7, 5]])
    assert model.cached(state.sequence) == 3 + 2  # the deepest level is drafted, never read
    model.passes.clear()
    drafter.propose([state], [7])
    assert model.passes[0][0].pending == (7, 5)
    assert [len(rows[0].tree) for rows in model.passes] == [0, 2, 4]


def test_a_level_reads_its_frontier_and_what_is_above_it_and_no_more() -> None:
    """Mistakes are likelier the earlier: the second path parts from the first at the root."""
    model = ScriptedTarget(lambda context: [float(-i * len(context)) for i in range(8)], 8)
    drafter = ModelDrafter(model, vocab_size=8, shared_ids=8, width=2)
    state = begin(drafter, (1, 2, 3))
    drafter.propose([state], [15])
    assert [len(rows[0].pending) for rows in model.passes] == [3, 1, 1, 1]
    assert [len(rows[0].tree) for rows in model.passes] == [0, 2, 4, 6]


@pytest.mark.parametrize("rule", ["match", "rejection"])
def test_trees_keep_within_the_draft_models_context(rule: Rule) -> None:
    model = ScriptedTarget(lambda context: [float(i % 5) for i in range(8)], 8, max_positions=9)
    drafter = ModelDrafter(model, vocab_size=8, shared_ids=8, width=2)
    found = []
    for length in range(5, 11):
        state = begin(drafter, tuple(range(1, 2)) * length, temperature=1.0, rule=rule)
        (tree,) = drafter.propose([state], [15])
        found.append(max(depths(tree), default=0))
        drafter.end(state)
    assert found == [4, 3, 2, 1, 0, 0]


def test_trees_are_accepted_further_than_the_chains_they_hold() -> None:
    """CACHE-8: six levels each, over tens of rounds with a draft model that is often wrong."""
    request = make_request(PROMPT, max_new_tokens=150)
    rounds = [
        decode(shared_target(), request, wide("noisy", width), max_draft=nodes).stats.rounds
        for width, nodes in ((1, 6), (3, 63))
    ]
    assert 25 < rounds[1] < rounds[0]


def test_a_tree_takes_a_pass_for_each_level_and_a_chain_for_each_token() -> None:
    assert [wide("exact").steps(nodes) for nodes in (0, 1, 2, 4, 16, 64)] == [0, 1, 2, 3, 5, 7]
    assert [wide("exact", 1).steps(nodes) for nodes in (0, 1, 2, 4)] == [0, 1, 2, 4]
    assert (wide("exact").drafts_trees, wide("exact", 1).drafts_trees) == (True, False)
    assert wide("exact").default_max_draft > wide("exact", 1).default_max_draft == 12


def test_a_width_below_one_is_an_error() -> None:
    with pytest.raises(OptionError, match="width is 0, must be at least 1"):
        ModelDrafter(shared_target(), vocab_size=VOCAB, shared_ids=VOCAB, width=0)
