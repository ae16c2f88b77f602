"""Medusa drafts: products of what each head guesses by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from outrider.drafters.base import DraftRequest
from outrider.drafters.medusa import MedusaDrafter
from outrider.sampling.noise import KeyedNoise
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.trees.layout import depths
from outrider.types import Rule
from support.heads import medusa_drafter
from support.runs import decode, make_request, shared_target
from support.tiny import VOCAB, random_ids, shared_model

TEXT = random_ids(30, 3)


def sampler(temperature: float = 0.0, rule: Rule = "match", seed: int = 5) -> KeyedDraftSampler:
    return KeyedDraftSampler(temperature, KeyedNoise(seed), rule, vocab_size=VOCAB)


def hidden(tokens: Sequence[int]) -> Tensor:
    """Return what the language-model head reads at each of the tokens [n, H]."""
    with torch.inference_mode():
        states = shared_model()(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    found: Tensor = states[-1][0]
    return found


def begun(drafter: MedusaDrafter, tokens: Sequence[int], **options: Any) -> Any:
    state = drafter.begin(DraftRequest(tuple(tokens[:-1]), 256, sampler(**options)))
    drafter.observe([state], [tokens[-1:]], [hidden(tokens[:-1])])
    return state


def own_logits(drafter: MedusaDrafter, tokens: Sequence[int]) -> Tensor:
    """Return the logits [K, V] of the heads at the last token whose state is known."""
    with torch.inference_mode():
        found: Tensor = drafter._heads(hidden(tokens[:-1])[-1:], drafter._output_layer)[:, 0]
    return found


@pytest.mark.parametrize("owns_output", [True, False])
def test_a_node_at_depth_d_is_a_guess_of_head_d(owns_output: bool) -> None:
    drafter = medusa_drafter(shared_model(), owns_output=owns_output)
    (tree,) = drafter.propose([begun(drafter, TEXT)], [60])
    guesses = own_logits(drafter, TEXT).topk(4).indices.tolist()
    assert len(tree) == 60
    assert max(depths(tree)) == 3
    for token, depth in zip(tree.tokens, depths(tree), strict=True):
        assert token in guesses[depth - 1]


def test_the_draft_is_the_likeliest_set_of_paths() -> None:
    drafter = medusa_drafter(shared_model())
    (tree,) = drafter.propose([begun(drafter, TEXT)], [8])
    laws = own_logits(drafter, TEXT).softmax(-1)
    best = laws.topk(4).values.tolist()
    products = [a for a in best[0]]
    products += [a * b for a in best[0] for b in best[1]]
    products += [a * b * c for a in best[0] for b in best[1] for c in best[2]]
    assert tree.chances is not None
    wanted = sorted(products, reverse=True)[:8]
    assert sorted(tree.chances, reverse=True) == pytest.approx(wanted, rel=1e-5)


def test_the_first_head_guesses_the_token_after_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRAIN-3: at position t the target gives t + 1, head k gives t + k + 2."""
    drafter = medusa_drafter(shared_model())
    positions: list[int] = []
    candidates = KeyedDraftSampler.candidates

    def noted(self: Any, logits: Tensor, places: Sequence[int], *rest: Any) -> Any:
        positions.extend(places)
        return candidates(self, logits, places, *rest)

    monkeypatch.setattr(KeyedDraftSampler, "candidates", noted)
    drafter.propose([begun(drafter, TEXT)], [8])
    last_read = len(TEXT) - 2
    assert positions == [last_read + 2, last_read + 3, last_read + 4]


def test_requests_share_one_pass_of_the_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = medusa_drafter(shared_model())
    states = [begun(drafter, TEXT[:length]) for length in (9, 20, 30)]
    rows: list[int] = []
    forward = type(drafter._heads).forward

    def counted(self: Any, states: Tensor, *rest: Any, **options: Any) -> Any:
        rows.append(len(states))
        return forward(self, states, *rest, **options)

    monkeypatch.setattr(type(drafter._heads), "forward", counted)
    together = drafter.propose(states, [6, 0, 9])
    assert rows == [2]
    assert [len(tree) for tree in together] == [6, 0, 9]
    (alone,) = drafter.propose(states[2:], [9])
    assert (alone.tokens, alone.parents) == (together[2].tokens, together[2].parents)


def test_drawn_trees_carry_the_law_of_the_head_at_their_depth() -> None:
    drafter = medusa_drafter(shared_model())
    state = begun(drafter, TEXT, temperature=0.7, rule="rejection")
    (tree,) = drafter.propose([state], [10])
    laws = (own_logits(drafter, TEXT) / 0.7).softmax(-1)
    assert tree.q is not None
    for node, depth in enumerate(depths(tree)):
        torch.testing.assert_close(tree.q[node].double(), laws[depth - 1], atol=1e-6, rtol=1e-4)


def test_drafting_takes_one_step_whatever_its_size() -> None:
    drafter = medusa_drafter(shared_model())
    assert {drafter.steps(budget) for budget in (1, 5, 63)} == {1}


def test_a_depth_no_head_reaches_is_not_drafted() -> None:
    drafter = medusa_drafter(shared_model(), width=1)
    (tree,) = drafter.propose([begun(drafter, TEXT)], [9])
    assert tree.is_chain
    assert len(tree) == 3


def test_drafts_count_in_the_engine() -> None:
    request = make_request(TEXT, max_new_tokens=30)
    found = decode(shared_target(), request, medusa_drafter(shared_model()), max_draft=6)
    assert found.stats.proposed > 0
