"""The target's first layers draft, and what it says stays what it says without them."""

from __future__ import annotations

import functools
import math
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.early_exit import EarlyExitDrafter, EarlyExitState
from outrider.drafters.ngram import NgramDrafter
from outrider.drafters.suffix import SuffixDrafter
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.engine.session import Session
from outrider.errors import DrafterWarning, OptionError
from outrider.sampling.noise import KeyedNoise
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.targets.base import Rows, ScoredRows
from outrider.targets.early_exit import EarlyExit
from outrider.targets.features import decoder_layers
from outrider.targets.transformers import TransformersTarget
from outrider.types import DraftTree, Rule
from support.runs import assert_same, collect, decode, draft_model, make_request
from support.tiny import VOCAB, random_ids, tiny_model

PROMPTS = (random_ids(5, 1), random_ids(12, 2) * 2, random_ids(9, 3))
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.0, "seed": 11},
    "filtered": {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "seed": 4},
}


@functools.cache
def shared(architecture: str = "llama") -> TransformersTarget:
    return TransformersTarget(damped_model(architecture))


@functools.cache
def plain(architecture: str, mode: str) -> list[Any]:
    return collect(Engine(shared(architecture)), requests(mode))


def requests(mode: str, count: int = 24) -> list[Request]:
    return [
        make_request(prompt, max_new_tokens=count, logprobs=2, **MODES[mode]) for prompt in PROMPTS
    ]


def damped_model(architecture: str = "llama", by: float = 0.2, **options: Any) -> PreTrainedModel:
    """Return a model whose last layer changes what the others say a little; 0 is not at all."""
    model = tiny_model(architecture, **({"num_hidden_layers": 3} | options))
    names = ("o_proj", "down_proj", "c_proj", "dense", "dense_4h_to_h", "fc2")
    with torch.no_grad():
        for name, parameter in decoder_layers(model)[-1].named_parameters():
            if any(f".{part}." in f".{name}" for part in names) or "post_" in name:
                parameter.mul_(by)
    return model


def begin(
    target: TransformersTarget,
    early: EarlyExit,
    *,
    temperature: float = 0.0,
    rule: Rule = "match",
    prompt: tuple[int, ...] = PROMPTS[0],
) -> tuple[EarlyExitDrafter, EarlyExitState]:
    drafter = EarlyExitDrafter(early)
    sampler = KeyedDraftSampler(temperature, KeyedNoise(3), rule)
    return drafter, drafter.begin(DraftRequest(prompt, 200, sampler, sequence=target.open(200)))


def early_laws(early: EarlyExit, target: TransformersTarget, text: Sequence[int]) -> Tensor:
    """Return the early logits after a text, worked out afresh."""
    sequence = target.open(len(text))
    try:
        return early.draft([sequence], [text])[0]
    finally:
        target.close(sequence)


# -- what is said ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["greedy", "sampled"])
@pytest.mark.parametrize("layer", [1, 2])
@pytest.mark.parametrize("architecture", ["llama", "gemma2", "mistral", "gpt2", "phi", "qwen3_moe"])
def test_early_exits_change_nothing_in_any_architecture(
    architecture: str, layer: int, mode: str
) -> None:
    drafter = EarlyExitDrafter(shared(architecture).exit_at(layer))
    found = collect(Engine(shared(architecture), drafter, max_draft=5), requests(mode))
    for one, other in zip(found, plain(architecture, mode), strict=True):
        assert_same(one, other)
    assert sum(result.stats.proposed for result in found) > 0


@pytest.mark.parametrize("length", range(1, 9))
def test_drafts_of_every_length_change_nothing(length: int) -> None:
    drafter = EarlyExitDrafter(shared().exit_at(2))
    for request, expected in zip(requests("filtered"), plain("llama", "filtered"), strict=True):
        found = decode(shared(), request, drafter, max_draft=length)
        assert_same(found, expected)
        assert found.stats.accepted > 0


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal"])
def test_greedy_text_is_the_same_under_every_rule(rule: Rule) -> None:
    drafter = EarlyExitDrafter(shared().exit_at(2))
    found = collect(Engine(shared(), drafter, rule=rule, max_draft=4), requests("greedy"))
    for one, other in zip(found, plain("llama", "greedy"), strict=True):
        assert_same(one, other)


OTHERS: dict[str, Callable[[], Drafter[Any]]] = {
    "suffix": SuffixDrafter,
    "ngram": lambda: NgramDrafter(min_ngram=1),
    "model": lambda: draft_model("unrelated"),
    "another exit": lambda: EarlyExitDrafter(shared().exit_at(1)),
}


@pytest.mark.parametrize("max_draft", [4, "auto"])
@pytest.mark.parametrize("name", OTHERS)
def test_other_drafters_beside_an_early_exit_change_nothing(name: str, max_draft: Any) -> None:
    pair = (OTHERS[name](), EarlyExitDrafter(shared().exit_at(2)))
    for drafters in (pair, pair[::-1]):
        found = collect(Engine(shared(), drafters, max_draft=max_draft), requests("greedy"))
        for one, other in zip(found, plain("llama", "greedy"), strict=True):
            assert_same(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_invariant_text_and_logprobs_are_those_of_plain_decoding(dtype: torch.dtype) -> None:
    target = TransformersTarget(damped_model(dtype=dtype), numerics="invariant")
    drafter = EarlyExitDrafter(target.exit_at(2))
    wanted = requests("sampled")
    expected = collect(Engine(target), wanted)
    for max_batch in (1, 8):
        engine = Engine(target, drafter, max_draft=5, max_batch=max_batch)
        for one, other in zip(collect(engine, wanted), expected, strict=True):
            assert one.token_ids == other.token_ids
            assert one.logprobs == other.logprobs


def test_a_second_turn_says_what_it_says_from_a_cold_start() -> None:
    drafter = EarlyExitDrafter(shared().exit_at(2))
    with Session(shared()) as session:
        first = decode(
            shared(), make_request(PROMPTS[0], max_new_tokens=9, session=session), drafter
        )
        prompt = (*first.prompt_ids, *first.token_ids, *random_ids(6, 50))
        options: dict[str, Any] = {"max_new_tokens": 20}
        second = decode(shared(), make_request(prompt, session=session, **options), drafter)
        assert second.stats.reused_tokens == len(PROMPTS[0]) + 8
    assert_same(second, decode(shared(), make_request(prompt, **options)))


_RUNS, _LENGTH, _WORDS = 400, 3, 5


@pytest.mark.parametrize("rule", ["match", "rejection", "block", "traversal"])
def test_sampled_text_keeps_the_law_of_the_target_under_every_rule(rule: Rule) -> None:
    model = damped_model(vocab_size=_WORDS, scale=3.0, by=3.0)
    target = TransformersTarget(model)
    drafter = EarlyExitDrafter(target.exit_at(2))
    wanted = [
        make_request((1, 2), temperature=1.0, seed=run, max_new_tokens=_LENGTH)
        for run in range(_RUNS)
    ]
    found = collect(Engine(target, drafter, rule=rule, max_draft=2), wanted)
    assert sum(result.stats.accepted for result in found) > _RUNS / 10
    assert sum(result.stats.accepted < result.stats.proposed for result in found) > _RUNS / 10
    counts = Counter(result.token_ids[:2] for result in found)
    with torch.inference_mode():
        first = model(torch.tensor([[1, 2]])).logits[0, -1].softmax(-1)
        texts = torch.tensor([[1, 2, word] for word in range(_WORDS)])
        law = first[:, None] * model(texts).logits[:, -1].softmax(-1)
    cells = [(i, j) for i in range(_WORDS) for j in range(_WORDS) if _RUNS * law[i, j] >= 5]
    chi_square = sum(
        (counts[cell] - _RUNS * float(law[cell])) ** 2 / (_RUNS * float(law[cell]))
        for cell in cells
    )
    assert len(cells) >= 8
    assert (chi_square - len(cells)) / math.sqrt(2 * len(cells)) < 4


# -- what is drafted ------------------------------------------------------------------------------


def test_a_greedy_draft_is_what_the_first_layers_would_say() -> None:
    early = shared().exit_at(2)
    drafter, state = begin(shared(), early)
    (tree,) = drafter.propose([state], [6])
    assert len(tree) == 6 and tree.is_chain and tree.q is None and tree.chances is not None
    reached = 1.0
    for depth, (token, chance) in enumerate(zip(tree.tokens, tree.chances, strict=True)):
        logits = early_laws(early, shared(), (*PROMPTS[0], *tree.tokens[:depth]))
        reached *= float(logits.softmax(-1)[token])
        assert token == int(logits.argmax())
        assert chance == pytest.approx(reached, rel=1e-3)


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal"])
def test_a_drawn_draft_comes_with_the_laws_it_was_drawn_from(rule: Rule) -> None:
    early = shared().exit_at(2)
    drafter, state = begin(shared(), early, temperature=0.8, rule=rule)
    (tree,) = drafter.propose([state], [5])
    assert len(tree) == 5 and tree.is_chain and tree.q is not None
    for depth in range(5):
        logits = early_laws(early, shared(), (*PROMPTS[0], *tree.tokens[:depth]))
        torch.testing.assert_close(
            tree.q[depth].double(), (logits / 0.8).softmax(-1), rtol=1e-5, atol=1e-6
        )


def test_proposing_again_gives_the_same_draft() -> None:
    drafter, state = begin(shared(), shared().exit_at(1))
    (first,) = drafter.propose([state], [5])
    (longer,) = drafter.propose([state], [7])
    assert longer.tokens[:5] == first.tokens


def test_each_request_gets_its_own_length_none_among_them() -> None:
    early = shared().exit_at(1)
    drafter, first = begin(shared(), early)
    others = [begin(shared(), early, prompt=prompt)[1] for prompt in PROMPTS[1:]]
    alone = [drafter.propose([state], [4])[0].tokens for state in (first, *others)]
    trees = drafter.propose([first, *others], [4, 0, 2])
    assert [tree.tokens for tree in trees] == [alone[0], (), alone[2][:2]]


def test_drafts_end_where_the_context_does() -> None:
    target = TransformersTarget(tiny_model(max_position_embeddings=12))
    drafter, state = begin(target, target.exit_at(1), prompt=random_ids(9))
    (tree,) = drafter.propose([state], [8])
    assert len(tree) == 3
    request = make_request(random_ids(9), max_new_tokens=50)
    assert_same(decode(target, request, drafter), decode(target, request))


def test_a_request_without_a_sequence_is_an_error() -> None:
    drafter = EarlyExitDrafter(shared().exit_at(1))
    sampler = KeyedDraftSampler(0.0, KeyedNoise(3), "match")
    with pytest.raises(OptionError, match="must name the target's sequence"):
        drafter.begin(DraftRequest((1, 2), 20, sampler))


# -- what is accepted -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "length"), [("greedy", 1), ("greedy", 12), ("sampled", 4), ("filtered", 9)]
)
def test_every_draft_is_accepted_if_the_last_layer_adds_nothing(mode: str, length: int) -> None:
    """CACHE-3: over 400 tokens, where the cache grows and where attention reads more of it."""
    target = TransformersTarget(damped_model(by=0.0, max_position_embeddings=1024))
    drafter = EarlyExitDrafter(target.exit_at(2))
    request = make_request(random_ids(150), max_new_tokens=400, **MODES[mode])
    result = decode(target, request, drafter, max_draft=length)
    assert result.stats.accepted == result.stats.proposed
    assert result.stats.rounds == math.ceil(400 / (length + 1))
    assert_same(result, decode(target, request))


class CountingTarget(TransformersTarget):
    """Counts the rows that passes are asked for, and those of them that a draft had."""

    asked = 0

    def score(self, rows: Sequence[Rows], layers: Sequence[int] = ()) -> ScoredRows:
        self.asked += sum(len(part.pending) + len(part.tree) for part in rows)
        return super().score(rows, layers)


@pytest.mark.parametrize("mode", ["greedy", "sampled"])
def test_a_run_computes_each_row_that_is_scored_once_in_every_layer(mode: str) -> None:
    model = damped_model()
    target = CountingTarget(model)
    drafter = EarlyExitDrafter(target.exit_at(2))
    counts: Counter[int] = Counter()
    for index, layer in enumerate(decoder_layers(model)):
        inside: Any = layer
        inside.mlp.register_forward_pre_hook(
            lambda _, args, index=index: counts.update({index: args[0].shape[1]})
        )
    target.asked = 0
    request = make_request(PROMPTS[1], max_new_tokens=40, **MODES[mode])
    result = decode(target, request, drafter, max_draft=6)
    assert 0 < result.stats.accepted < result.stats.proposed
    assert counts == dict.fromkeys(range(3), target.asked)


# -- faults ---------------------------------------------------------------------------------------


class Faulty(EarlyExitDrafter):
    """Raises in the middle of its third draft, inside a layer."""

    def __init__(self, early: EarlyExit, model: PreTrainedModel) -> None:
        super().__init__(early)
        self._model = model
        self.drafts = 0

    def propose(self, states: Sequence[EarlyExitState], budgets: Sequence[int]) -> list[DraftTree]:
        self.drafts += 1
        if self.drafts < 3:
            return super().propose(states, budgets)
        layers: Any = decoder_layers(self._model)
        calls = 0

        def fail(*_: object) -> None:
            nonlocal calls
            calls += 1
            if calls == 3:
                raise ArithmeticError("in a layer")

        handle = layers[1].mlp.register_forward_pre_hook(fail)
        try:
            return super().propose(states, budgets)
        finally:
            handle.remove()


def test_a_fault_in_a_draft_costs_nothing_but_the_draft() -> None:
    target = shared()
    faulty = Faulty(target.exit_at(2), target.model)
    engine = Engine(target, faulty, max_draft=5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = collect(engine, requests("greedy"))
    assert any(issubclass(one.category, DrafterWarning) for one in caught)
    assert {result.stats.drafter_error for result in found} == {"ArithmeticError: in a layer"}
    for one, other in zip(found, plain("llama", "greedy"), strict=True):
        assert_same(one, other)
    for module in target.model.modules():
        assert "forward" not in vars(module) and not module._forward_pre_hooks


def test_laws_have_the_width_of_the_targets_vocabulary() -> None:
    drafter, state = begin(shared(), shared().exit_at(1), temperature=1.0, rule="rejection")
    (tree,) = drafter.propose([state], [2])
    assert tree.q is not None and tree.q.shape == (2, VOCAB)
