"""Lossy rules change the law, accept at least what lossless ones do, and never come unasked."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any, get_args

import pytest
import torch

import outrider
from outrider.drafters.model import ModelDrafter
from outrider.engine.engine import Engine
from outrider.errors import OptionError
from outrider.proof.enumeration import (
    Choices,
    Drafting,
    Model,
    ModelRows,
    Row,
    continuations,
    double_tensor,
    enumerate_round,
    first_token,
    law_difference,
)
from outrider.proof.enumeration import VerificationRule as Rule
from outrider.proof.toys import B, chain_parents, fixed, one_hot_model, random_model, row, sampled
from outrider.sampling.draw import highest
from outrider.targets.transformers import TransformersTarget
from outrider.types import DraftTree, LossyRule, Verification
from outrider.types import Rule as RuleName
from outrider.verification import verify
from outrider.verification.base import Randomness, TargetRows
from outrider.verification.lossy import entropy, parse_lossy, verify_lossy
from support.runs import collect, draft_model, make_request, shared_target
from support.tiny import VOCAB, noisy_copy, random_ids, shared_model

V = 3


@dataclass
class Spread:
    """Rows of an enumeration, each asked of it once; greedy rows give the likeliest token."""

    rows: TargetRows
    is_greedy: bool = False
    laws: dict[int, Any] = field(default_factory=dict)

    def spread(self, row: int) -> Any:
        if row not in self.laws:
            self.laws[row] = self.rows.probs(row)
        return self.laws[row]

    def probs(self, row: int) -> Any:
        assert not self.is_greedy
        return self.spread(row)

    def token(self, row: int) -> int:
        if self.is_greedy:
            return highest(self.spread(row))[0]
        assert isinstance(self.rows, ModelRows)
        assert self.rows.choices is not None
        return self.rows.choices.choose(self.spread(row).tolist())


def lossy(text: str | LossyRule, *, greedy: bool = False) -> Rule:
    rule = parse_lossy(text) if isinstance(text, str) else text

    def run(rows: TargetRows, tree: DraftTree, randomness: Randomness) -> Verification:
        return verify_lossy(rule, Spread(rows, greedy), tree, randomness)

    return run


HALF = LossyRule("lenience", (Fraction(1, 2),))  # type: ignore[arg-type]
NONE = LossyRule("lenience", (Fraction(1),))  # type: ignore[arg-type]
SHAPES = {"chain": chain_parents(3), "tree": (-1, -1, 0, 0, 1)}
TREES = {
    "chain": DraftTree.chain([2, 1, 0]),
    "tree": DraftTree((2, 0, 1, 2, 0), (-1, -1, 0, 0, 1)),
}

target: Model = random_model(1, V, zeros=0)
drafter: Model = random_model(2, V)


def difference(
    rule: Rule, model: Model, drafting: Drafting, to_array: Callable[..., Any] | None = None
) -> Any:
    arrays = {} if to_array is None else {"to_array": to_array}
    law = enumerate_round(rule, model, drafting, 4, **arrays).law
    tolerance = 0 if to_array is None else 1e-12
    return law_difference(law, continuations(model, (), 4), tolerance)


def test_lenience_emits_the_published_law() -> None:
    p, q = B
    law = first_token(lossy(HALF), p, sampled(lambda _: q, (-1,)))
    assert law == row(".3", ".3", ".4")


@pytest.mark.parametrize("shape", SHAPES)
def test_lenience_changes_the_law_and_none_at_all_does_not(shape: str) -> None:
    for drafting in (sampled(drafter, SHAPES[shape]), fixed(TREES[shape])):
        assert difference(lossy(HALF), target, drafting) is not None
        assert difference(lossy(NONE), target, drafting) is None


MATCHING = {
    "typical": ("typical:0.3,0.9", f"typical:1,{V}"),
    "fly": ("fly:1,0.3", "fly:1,1"),
    "fly without a window": ("fly:0,0.3", "fly:0,1"),
}


@pytest.mark.parametrize("name", MATCHING)
@pytest.mark.parametrize("shape", TREES)
def test_what_passes_without_a_match_changes_the_law_unless_nothing_does(
    name: str, shape: str
) -> None:
    loose, strict = MATCHING[name]
    drafting = fixed(TREES[shape])
    assert difference(lossy(loose), target, drafting, double_tensor) is not None
    assert difference(lossy(strict), target, drafting, double_tensor) is None


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", SHAPES)
def test_a_lossy_rule_accepts_at_least_what_the_rule_it_relaxes_does(seed: int, shape: str) -> None:
    """Lenience on chains only: a sibling accepted early may have less below it."""
    model, guesses = random_model(seed, V), sampled(random_model(seed + 50, V), chain_parents(3))
    known = fixed(TREES[shape])

    def accepted(rule: Rule, drafting: Drafting) -> float:
        return float(enumerate_round(rule, model, drafting, 1, double_tensor).accepted)

    strict: Rule = partial(verify, "rejection")
    for drafting in (guesses, fixed(TREES["chain"])):
        assert accepted(lossy("lenience:0.4"), drafting) >= accepted(strict, drafting) - 1e-12
    match: Rule = partial(verify, "match")
    for loose, _ in MATCHING.values():
        assert accepted(lossy(loose), known) >= accepted(match, known) - 1e-12


def greedy_round(rule: Rule, *laws: tuple[float, ...], tree: DraftTree) -> Verification:
    def model(text: tuple[int, ...]) -> Row:
        return row(*(str(chance) for chance in laws[len(text)]))

    rows = ModelRows(model, tree, double_tensor, Choices([]))
    return rule(rows, tree, None)  # type: ignore[arg-type]


SURE, UNSURE = (0.9, 0.06, 0.04), (0.4, 0.35, 0.25)


def test_greedy_lenience_passes_what_is_near_the_likeliest() -> None:
    tree = DraftTree.chain([1])
    run = partial(greedy_round, tree=tree)
    assert run(lossy("lenience:0.8", greedy=True), UNSURE, SURE) == Verification((0,), 0)
    assert run(lossy("lenience:0.9", greedy=True), UNSURE, SURE) == Verification((), 0)
    assert run(lossy("lenience:1", greedy=True), (0.4, 0.4, 0.2), SURE) == Verification((), 0)


def test_typical_acceptance_asks_for_less_where_the_target_is_unsure() -> None:
    """min(eps, delta exp(-H)): H is 0.39 nats at the first law and 1.08 at the second."""
    rule = lossy("typical:0.3,0.15", greedy=True)
    tree = DraftTree.chain([1])
    assert greedy_round(rule, SURE, SURE, tree=tree) == Verification((), 0)
    assert greedy_round(rule, UNSURE, SURE, tree=tree) == Verification((0,), 0)
    assert entropy(torch.tensor(UNSURE)) == pytest.approx(1.0805, abs=1e-4)


@pytest.mark.parametrize(
    ("laws", "tokens", "path"),
    [
        ((UNSURE, SURE, SURE, SURE), (1, 0, 0), (0, 1, 2)),  # two matches behind it
        ((SURE, SURE, SURE, SURE), (1, 0, 0), ()),  # sure of another token
        ((UNSURE, SURE, UNSURE, SURE), (1, 0, 1), ()),  # another mismatch in the window
        ((UNSURE, SURE, SURE, SURE), (1, 0), ()),  # the window is longer than the draft
        ((SURE, UNSURE, SURE, SURE, SURE), (0, 1, 0, 0), (0, 1, 2, 3)),
    ],
)
def test_fly_passes_a_mismatch_once_its_window_matches(
    laws: tuple[tuple[float, ...], ...], tokens: tuple[int, ...], path: tuple[int, ...]
) -> None:
    rule = lossy("fly:2,0.5", greedy=True)
    found = greedy_round(rule, *laws, tree=DraftTree.chain(tokens))
    assert found == Verification(path, 0)


@pytest.mark.parametrize("text", ["lenience:0.01", "typical:0.01,0.01", "fly:0,0"])
def test_what_the_target_gives_no_chance_never_passes(text: str) -> None:
    model = one_hot_model(3, V)
    for token in range(V):
        drafting = fixed(DraftTree.chain([token, token]))
        assert difference(lossy(text), model, drafting, double_tensor) is None


def test_what_an_option_forbids_does_not_pass_where_the_target_is_unsure() -> None:
    tree = DraftTree.chain([2])
    for text in ("lenience:0.01", "typical:0.01,0.01", "fly:0,0.1"):
        found = greedy_round(lossy(text, greedy=True), (0.5, 0.5, 0), SURE, tree=tree)
        assert found == Verification((), 0)


# -- how they are named ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("match", "lenience", "lenience:", "lenience:0", "lenience:1.1", "lenience:0.5,1"),
        *("typical:0.1", "typical:0,0.3", "typical:0.1,-1", "typical:nan,0.3", "typical:1,inf"),
        *("fly:6", "fly:-1,0.3", "fly:1.5,0.3", "fly:2,1.2", "", None, 5, HALF),
    ],
)
def test_anything_else_is_refused(text: Any) -> None:
    with pytest.raises(OptionError, match="lossy is"):
        parse_lossy(text)


@pytest.mark.parametrize("text", ["lenience:0.5", "typical:0.09,0.3", "fly:6,0.3"])
def test_a_lossy_rule_is_called_what_the_user_called_it(text: str) -> None:
    assert str(parse_lossy(text)) == text


def test_no_other_option_gives_a_lossy_rule() -> None:
    assert not {"lenience", "typical", "fly"} & set(get_args(RuleName))
    for make in (outrider.load, Engine):
        assert inspect.signature(make).parameters["lossy"].default is None
    assert "lossy" not in inspect.signature(outrider.custom_generate).parameters
    assert "lossy" not in {one.name for one in dataclasses.fields(outrider.SamplingParams)}
    for name in ("typical", "typical:0.1,0.3", parse_lossy("fly:2,0.3")):
        with pytest.raises(OptionError, match="rule is"):
            Engine(shared_target(), rule=name)  # type: ignore[arg-type]


def test_a_lossless_rule_beside_a_lossy_one_is_refused() -> None:
    for rule in ("rejection", "block"):
        with pytest.raises(OptionError, match=r"rule is '\w+' and lossy 'fly:2,0.3'"):
            outrider.load("nowhere", rule=rule, lossy="fly:2,0.3")


# -- in the engine ---------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("text", ["lenience:0.2", "typical:0.05,0.1", "fly:1,0.05"])
def test_a_lossy_engine_accepts_more_in_fewer_rounds_and_says_what_it_is(
    text: str, temperature: float
) -> None:
    wanted = [
        make_request(random_ids(9, seed), temperature=temperature, max_new_tokens=40)
        for seed in range(4)
    ]
    rule = parse_lossy(text)
    plain = collect(Engine(shared_target()), wanted)
    drafter = ModelDrafter(
        TransformersTarget(noisy_copy(shared_model(), 0.02)), vocab_size=VOCAB, shared_ids=VOCAB
    )
    strict = collect(Engine(shared_target(), drafter, rule=rule.base, max_draft=4), wanted)
    match = collect(Engine(shared_target(), drafter, max_draft=4), wanted)
    loose = collect(Engine(shared_target(), drafter, lossy=rule, max_draft=4), wanted)
    assert sum(r.stats.tokens for r in loose) == sum(r.stats.tokens for r in match)
    assert sum(r.stats.rounds for r in loose) < sum(r.stats.rounds for r in match)
    assert sum(r.stats.accepted for r in loose) > sum(r.stats.accepted for r in strict)
    assert [r.token_ids for r in loose] != [r.token_ids for r in plain]
    for result in loose:
        assert result.lossy == result.stats.to_dict()["lossy"] == text
    assert {result.lossy for result in (*plain, *strict, *match)} == {None}


def test_at_its_limit_a_lossy_engine_says_what_the_target_says() -> None:
    wanted = [make_request(random_ids(9, seed), max_new_tokens=30) for seed in range(3)]
    plain = collect(Engine(shared_target()), wanted)
    for text in ("lenience:1", "typical:1,64", "fly:1,1"):
        engine = Engine(shared_target(), draft_model("noisy"), lossy=parse_lossy(text), max_draft=4)
        found = collect(engine, wanted)
        assert [r.token_ids for r in found] == [r.token_ids for r in plain]


@pytest.mark.parametrize("word", [{"rule": "match"}, {"speculate": False}])
def test_a_request_with_a_rule_of_its_own_or_no_drafts_is_not_lossy(word: dict[str, Any]) -> None:
    request = make_request(random_ids(9, 1), max_new_tokens=20)
    own = dataclasses.replace(request, **word)
    engine = Engine(
        shared_target(), draft_model("unrelated"), lossy=parse_lossy("typical:0.01,0.01")
    )
    (plain,) = collect(Engine(shared_target()), [request])
    (found,) = collect(engine, [own])
    assert found.token_ids == plain.token_ids
    assert found.lossy is None
