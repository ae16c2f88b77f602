"""A draft model proposes what it would say itself, and its cache follows the text exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from outrider.drafters.base import DraftRequest
from outrider.drafters.model import ModelDrafter, ModelState
from outrider.engine.engine import Engine
from outrider.sampling.noise import KeyedNoise
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.targets.transformers import TransformersTarget
from outrider.types import NO_DRAFT, DraftTree, Rule
from support.runs import assert_same, collect, decode, draft_model, make_request, shared_target
from support.scripted import ScriptedTarget
from support.tiny import VOCAB, greedy_ids, random_ids, shared_model, tiny_model

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


class Recording(ModelDrafter):
    """Keeps its proposals, and may rest in some rounds or have some tokens replaced."""

    def __init__(self, model: TransformersTarget, **options: Any) -> None:
        super().__init__(model, vocab_size=VOCAB, shared_ids=options.pop("shared_ids", VOCAB))
        self.options = options
        self.proposals: list[DraftTree] = []
        self.rounds = 0

    def propose(self, states: Sequence[ModelState], budgets: Sequence[int]) -> list[DraftTree]:
        self.rounds += 1
        if self.rounds in self.options.get("rests", ()):
            return [NO_DRAFT for _ in states]
        trees = super().propose(states, budgets)
        every = self.options.get("wrong_every")
        if every:
            trees = [_with_wrong_tokens(tree, every) for tree in trees]
        self.proposals += trees
        return trees


def _with_wrong_tokens(tree: DraftTree, every: int) -> DraftTree:
    tokens = [(t + 1) % VOCAB if i % every == every - 1 else t for i, t in enumerate(tree.tokens)]
    return DraftTree.chain(tokens)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_proposal_is_what_the_model_would_say(batch: int) -> None:
    drafter = draft_model("exact")
    prompts = [random_ids(3 + 5 * i, i) for i in range(batch)]
    states = [begin(drafter, prompt) for prompt in prompts]
    budgets = [6, 0, 3][:batch]
    trees = drafter.propose(states, budgets)
    for prompt, budget, tree in zip(prompts, budgets, trees, strict=True):
        expected = greedy_ids(shared_model(), prompt, budget) if budget else []
        assert tree.tokens == tuple(expected)
        assert tree.is_chain and tree.q is None
    for state in states:
        drafter.end(state)


@pytest.mark.parametrize("max_draft", [1, 2, 4, 7])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_exact_copy_is_always_right(temperature: float, max_draft: int) -> None:
    """CACHE-3: over 120 tokens, sampled with the target's own noise as well as greedy."""
    request = make_request(PROMPT, temperature=temperature, seed=5, max_new_tokens=120)
    found = decode(shared_target(), request, draft_model("exact"), max_draft=max_draft)
    assert found.stats.acceptance_rate == 1
    assert found.stats.rounds == -(-120 // (max_draft + 1))


def test_a_wrong_draft_costs_only_what_follows_it() -> None:
    """CACHE-3: each round is accepted up to the next wrong token, and right again after it."""
    drafter = Recording(shared_target(), wrong_every=3)
    request = make_request(PROMPT, max_new_tokens=120)
    found = decode(shared_target(), request, drafter, max_draft=5)
    assert_same(found, decode(shared_target(), request))
    assert found.stats.rounds == 40
    assert found.stats.accepted_at[:2] == [40, 40]
    assert sum(found.stats.accepted_at[2:]) == 0


@pytest.mark.parametrize("kind", ["match", "rejection", "block", "traversal"])
def test_the_cache_is_the_committed_text_after_every_round(kind: Rule) -> None:
    """CACHE-3: never a token that was rejected, never one behind a token not read yet."""
    model = TransformersTarget(tiny_model(seed=7, num_hidden_layers=1))
    drafter = ModelDrafter(model, vocab_size=VOCAB, shared_ids=VOCAB)
    text = (*PROMPT, *greedy_ids(shared_model(), PROMPT, 40))
    state = begin(drafter, temperature=1.0, rule=kind)
    position = len(PROMPT)
    for step, count in enumerate((1, 3, 2, 5, 1, 1, 4)):
        if step != 2:
            drafter.propose([state], [4])
        drafter.observe([state], [text[position : position + count]])
        position += count
        assert tuple(state.tokens) == text[:position]
        assert model.cached(state.sequence) < position
        fresh = begin(drafter, text[:position], temperature=0.0)
        state.sampler, again = fresh.sampler, drafter.propose([fresh], [4])
        assert drafter.propose([state], [4])[0].tokens == again[0].tokens
        drafter.observe([state], [()])
        state.sampler = begin(drafter, temperature=1.0, rule=kind).sampler
        drafter.end(fresh)


def test_a_pause_leaves_nothing_stale() -> None:
    """ADAPT-6: 20 rounds with drafts, 50 without, and right at once afterwards."""
    drafter = Recording(shared_target(), rests=range(20, 70))
    request = make_request(PROMPT, max_new_tokens=210)
    found = decode(shared_target(), request, drafter, max_draft=4)
    assert found.stats.acceptance_rate == 1
    assert found.stats.rounds > 80


def test_q_is_the_law_each_token_was_drawn_from() -> None:
    """DIST-3: it comes with sampled drafts under the rules that reject, and with no others."""
    drafter = draft_model("exact")
    rules: tuple[Rule, ...] = ("match", "rejection", "block", "traversal")
    for rule in rules:
        state = begin(drafter, temperature=0.7, rule=rule)
        (tree,) = drafter.propose([state], [3])
        drafter.end(state)
        if rule == "match":
            assert tree.q is None
            continue
        assert tree.q is not None
        context = torch.tensor([[*PROMPT, *tree.tokens[:-1]]])
        model: Any = shared_model()
        with torch.inference_mode():
            logits = model(input_ids=context, use_cache=False).logits[0, -3:]
        torch.testing.assert_close(tree.q, (logits / 0.7).softmax(-1))


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal"])
def test_an_exact_copy_is_always_accepted_by_the_rules_that_reject(rule: Rule) -> None:
    request = make_request(PROMPT, temperature=1.0, max_new_tokens=40)
    found = decode(shared_target(), request, draft_model("exact"), rule=rule)
    assert found.stats.acceptance_rate == 1


def padded_draft(rows: int) -> TransformersTarget:
    """Return a draft model of `rows` ids that would always rather say one from 40 on."""
    model = tiny_model(seed=3, vocab_size=rows)
    with torch.no_grad():
        head = model.get_submodule("lm_head").get_parameter("weight")
        head[:40] *= 0.1
    return TransformersTarget(model)


@pytest.mark.parametrize("rows", [60, 64, 72])
@pytest.mark.parametrize("rule", ["match", "rejection"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_ids_that_mean_nothing_to_both_are_never_drafted(
    temperature: float, rule: Rule, rows: int
) -> None:
    """VOCAB-1: one tokenizer of 40 ids, heads padded to 64 and to fewer, as many or more rows."""
    drafter = Recording(padded_draft(rows), shared_ids=40)
    request = make_request(PROMPT, temperature=temperature, max_new_tokens=24)
    found = decode(shared_target(), request, drafter, rule=rule)
    assert found.stats.drafter_error is None
    drafted = [token for tree in drafter.proposals for token in tree.tokens]
    assert drafted and max(drafted) < 40
    for tree in drafter.proposals:
        assert tree.q is None or tree.q.shape == (len(tree), VOCAB)
    if rule == "match" or temperature == 0:
        assert_same(found, decode(shared_target(), request))
    # Without the mask it would have drafted nothing else.
    unmasked = Recording(padded_draft(rows), shared_ids=min(rows, VOCAB))
    decode(shared_target(), request, unmasked, rule=rule)
    assert any(token >= 40 for tree in unmasked.proposals for token in tree.tokens)


@pytest.mark.parametrize("prompt", [PROMPT, (63, *PROMPT), (50,)])
def test_ids_the_draft_model_does_not_have_can_still_be_emitted_and_prompted(
    prompt: tuple[int, ...],
) -> None:
    """VOCAB-8: a draft model of 48 ids goes on drafting after the target says a later one."""
    request = make_request(prompt, max_new_tokens=40, logit_bias={55: 3.0})
    plain = decode(shared_target(), request)
    assert max(plain.token_ids) >= 48
    drafter = Recording(TransformersTarget(tiny_model(seed=3, vocab_size=48)), shared_ids=48)
    found = decode(shared_target(), request, drafter, max_draft=2)
    assert_same(found, plain)
    assert found.stats.drafter_error is None
    assert drafter.rounds > 10
    assert max(token for tree in drafter.proposals for token in tree.tokens) < 48


def test_the_users_draft_model_is_left_as_it_is() -> None:
    """VOCAB-4: logits bit for bit, classes, names of weights, and configuration."""
    model: Any = tiny_model(seed=3, vocab_size=72)
    ids = torch.tensor([[3, 4, 5]])
    before = model(input_ids=ids).logits
    classes = [type(module) for module in model.modules()]
    keys, settings = list(model.state_dict()), model.generation_config.to_dict()
    decode(
        shared_target(),
        make_request(PROMPT, max_new_tokens=12),
        Recording(TransformersTarget(model), shared_ids=40),
    )
    assert torch.equal(model(input_ids=ids).logits, before)
    assert [type(module) for module in model.modules()] == classes
    assert (list(model.state_dict()), model.generation_config.to_dict()) == (keys, settings)


def test_two_draft_models_of_different_widths_share_nothing() -> None:
    """VOCAB-5: alternated on one target."""
    drafters = [
        ModelDrafter(
            TransformersTarget(tiny_model(seed=size, hidden_size=size, head_dim=size // 4)),
            vocab_size=VOCAB,
            shared_ids=VOCAB,
        )
        for size in (32, 48)
    ]
    request = make_request(PROMPT, max_new_tokens=16)
    plain = decode(shared_target(), request)
    proposed = []
    for drafter in [*drafters, *drafters]:
        found = decode(shared_target(), request, drafter)
        assert_same(found, plain)
        proposed.append(found.stats.proposed_at)
    assert proposed[:2] == proposed[2:]


def test_the_target_may_draft_for_itself() -> None:
    """One model object, and even one cache, may serve as target and drafter."""
    target = shared_target()
    drafter = ModelDrafter(target, vocab_size=VOCAB, shared_ids=VOCAB)
    wanted = [make_request(random_ids(5 + i, i), max_new_tokens=20) for i in range(3)]
    results = collect(Engine(target, drafter, max_draft=5), wanted)
    for result, request in zip(results, wanted, strict=True):
        assert_same(result, decode(target, request))
        assert result.stats.acceptance_rate == 1
    assert not target._sequences


def test_sequences_are_closed_with_their_requests() -> None:
    model = TransformersTarget(tiny_model(seed=7, num_hidden_layers=1))
    drafter = ModelDrafter(model, vocab_size=VOCAB, shared_ids=VOCAB)
    wanted = [make_request(random_ids(5 + i, i), max_new_tokens=3 + i) for i in range(5)]
    run = Engine(shared_target(), drafter, max_draft=5, max_batch=3).run(wanted)
    for _ in range(4):
        next(run)
    assert 0 < len(model._sequences) <= 3
    run.close()
    assert not model._sequences


def test_a_draft_model_may_be_scripted() -> None:
    """Any target can draft: here one that says two tokens in turn."""
    model = ScriptedTarget.saying([5, 6], 8)
    drafter = ModelDrafter(model, vocab_size=8, shared_ids=8)
    target = ScriptedTarget.saying([5, 6, 7], 8)
    result = decode(target, make_request((1,), max_new_tokens=9), drafter, max_draft=4)
    assert_same(result, decode(target, make_request((1,), max_new_tokens=9)))
    assert not model.held


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_model_that_begins_late_or_rests_guesses_as_well_as_ever(
    temperature: float,
) -> None:
    """ADAPT-6: every draft of an exact copy is right, from the first round after a pause."""
    request = make_request(PROMPT, max_new_tokens=60, temperature=temperature, seed=3)
    text = [*PROMPT, *decode(shared_target(), request).token_ids]
    drafter = draft_model("exact")
    sampler = KeyedDraftSampler(temperature, KeyedNoise(3), "match")
    start = len(PROMPT) + 10
    state = drafter.begin(DraftRequest(tuple(text[:start]), len(text), sampler))
    for place in (start, start + 1, start + 30):
        drafter.observe([state], [text[len(state.tokens) : place]])
        (tree,) = drafter.propose([state], [4])
        assert list(tree.tokens) == text[place : place + 4]
    drafter.end(state)
