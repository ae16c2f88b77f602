"""The rules by exact enumeration: every draft, every decision, all laws compared as fractions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import get_args

from outrider.proof.base import Check, Unit, Work
from outrider.proof.enumeration import (
    Drafting,
    Model,
    Row,
    VerificationRule,
    continuations,
    enumerate_round,
    law_difference,
)
from outrider.proof.toys import (
    A,
    B,
    C,
    D,
    F,
    chain_parents,
    constant,
    fixed,
    one_hot_model,
    random_model,
    row,
    sampled,
)
from outrider.types import DraftTree, Rule
from outrider.verification import verify

Rules = Mapping[Rule, VerificationRule]

OUR_RULES: Rules = {rule: partial(verify, rule) for rule in get_args(Rule)}

_MODELS: dict[str, tuple[Model, Model]] = {
    "any models": (random_model(1, 3), random_model(2, 3)),
    "other models": (random_model(3, 3), random_model(4, 3)),
    "many zeros": (random_model(5, 3, zeros=4), random_model(6, 3, zeros=4)),
    "equal models": (random_model(7, 3), random_model(7, 3)),
    "certain target": (one_hot_model(8, 3), random_model(9, 3)),
    "certain drafter": (random_model(10, 3), one_hot_model(11, 3)),
    "both certain": (one_hot_model(12, 3), one_hot_model(13, 3)),
    "filtered target": (constant(row(4, 3, 0)), constant(row(1, 2, 3))),
}
_SHAPES = {
    "two children": (-1, -1),
    "three children": (-1, -1, -1),
    "two by two": (-1, -1, 0, 0, 1, 1),
    "a chain with a sibling at each depth": (-1, -1, 0, 0, 2),
    "second child goes deepest": (-1, -1, 1, 2),
    "siblings apart in the list": (-1, 0, -1, 2, 0),
}
_FIXED = {
    "no draft": DraftTree(),
    "chain": DraftTree.chain((1, 0, 1)),
    "level": DraftTree((0, 1, 2), (-1, -1, -1)),
    "two by two": DraftTree((2, 0, 1, 2, 0, 1), (-1, -1, 0, 0, 1, 1)),
}
# Expected accepted tokens of chains of 1, 2, 3, by the formulas of 2211.17192 and 2403.10444. They
# show what the law does not: that the rule was given q, and made use of it.
_ACCEPTED: dict[str, tuple[tuple[Row, Row], dict[Rule, tuple[str, str, str]]]] = {
    "p 1/3 2/3, q 2/3 1/3": (
        A,
        {
            "rejection": ("2/3", "10/9", "38/27"),
            "block": ("2/3", "11/9", "5/3"),
            "traversal": ("2/3", "11/9", "5/3"),
        },
    ),
    "p .5 .3 .2, q .2 .3 .5": (
        B,
        {
            "match": (".29", ".3741", ".398489"),
            "rejection": (".7", "1.19", "1.533"),
            "block": (".7", "1.25", "1.695"),
            "traversal": (".7", "1.25", "1.695"),
        },
    ),
    "p .5 .3 .2, q .8 .1 .1": (
        C,
        {
            "rejection": (".7", "1.19", "1.533"),
            "block": (".7", "1.25", "1.711"),
            "traversal": (".7", "1.25", "1.711"),
        },
    ),
    "p = q": (
        D,
        {rule: ("1", "2", "3") for rule in ("rejection", "block", "traversal")},
    ),
}
_ACCEPTED_SIBLINGS = (
    ("p .4 .3 .2 .1, q .1 .2 .3 .4", F, ("3/5", "107/140")),
    ("p .5 .3 .2, q .2 .3 .5", B, ("7/10", "41/50")),
)
_WEIGHT = 2.0  # of one of the checks below, in tokens of plain decoding


@dataclass(frozen=True, slots=True)
class _Case:
    """One drafter and target, enumerated under a rule: what must come out."""

    name: str
    target: Model
    drafting: Drafting
    length: int
    accepted: Fraction | None = None
    """Expected accepted tokens, where they are known; the law is compared in any case."""

    def fault(self, rule: VerificationRule) -> str | None:
        """Say what is wrong with a rule, None if nothing is."""
        found = enumerate_round(rule, self.target, self.drafting, self.length)
        expected = continuations(self.target, (), self.length)
        text = law_difference(found.law, expected)
        if text is not None:
            ours, theirs = found.law.get(text, 0), expected.get(text, 0)
            return f"{self.name}: text {list(text)} has probability {ours} rather than {theirs}"
        if self.accepted is not None and found.accepted != self.accepted:
            return f"{self.name}: accepts {found.accepted} tokens rather than {self.accepted}"
        return None


def rule_work(rules: Rules) -> Work:
    """Yield a unit for each rule and kind of draft."""
    for rule, verify_by in rules.items():
        for kind, cases in _kinds(rule).items():
            name = f"{rule}: {kind}"
            yield Unit(f"rules/{name}", _WEIGHT, partial(_check, name, verify_by, cases))


def rule_weight(rules: Rules) -> float:
    """Return what all units of `rule_work` take."""
    return _WEIGHT * sum(len(_kinds(rule)) for rule in rules)


def _check(name: str, rule: VerificationRule, cases: Callable[[], Iterator[_Case]]) -> Check:
    faults: list[str] = []
    laws = 0
    for case in cases():
        laws += 1
        try:
            fault = case.fault(rule)
        except Exception as error:  # noqa: BLE001  whatever a rule raises is what is wrong with it
            fault = f"{case.name}: {type(error).__name__}: {error}"
        if fault is not None:
            faults.append(fault)
    return Check("rules", name, {"laws": laws}, faults=tuple(faults))


def _kinds(rule: Rule) -> dict[str, Callable[[], Iterator[_Case]]]:
    """Return the kinds of drafts that a rule verifies, and how to make their cases."""
    kinds: dict[str, Callable[[], Iterator[_Case]]] = {"sampled chains": _sampled_chains}
    if rule != "block":
        kinds["sampled trees"] = _sampled_trees
    kinds["deterministic drafts"] = partial(_deterministic, with_trees=rule != "block")
    kinds["accepted tokens"] = partial(_accepted, rule)
    return kinds


def _sampled_chains() -> Iterator[_Case]:
    for name, (target, drafter) in _MODELS.items():
        for count in (1, 2, 3):
            drafting = sampled(drafter, chain_parents(count))
            yield _Case(f"chain of {count}, {name}", target, drafting, count + 1)


def _sampled_trees() -> Iterator[_Case]:
    for shape, parents in _SHAPES.items():
        for name, (target, drafter) in _MODELS.items():
            yield _Case(f"{shape}, {name}", target, sampled(drafter, parents), 4)


def _deterministic(*, with_trees: bool) -> Iterator[_Case]:
    for shape, tree in _FIXED.items():
        if with_trees or tree.is_chain:
            for name, (target, _) in _MODELS.items():
                yield _Case(f"{shape}, {name}", target, fixed(tree), 4)


def _accepted(rule: Rule) -> Iterator[_Case]:
    for name, (laws, by_rule) in _ACCEPTED.items():
        for count, accepted in enumerate(by_rule.get(rule, ()), 1):
            drafting = sampled(constant(laws[1]), chain_parents(count))
            case = f"chain of {count}, {name}"
            yield _Case(case, constant(laws[0]), drafting, count + 1, Fraction(accepted))
    if rule in ("rejection", "traversal"):
        for name, laws, values in _ACCEPTED_SIBLINGS:
            for count, accepted in enumerate(values, 1):
                drafting = sampled(constant(laws[1]), (-1,) * count)
                case = f"{count} siblings, {name}"
                yield _Case(case, constant(laws[0]), drafting, 2, Fraction(accepted))
