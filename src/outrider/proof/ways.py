"""The ways to draw answers whose law is tested: our own drafters, controls, and the user's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from outrider.decoder import Decoder
from outrider.drafters.base import Drafter
from outrider.drafters.early_exit import EarlyExitDrafter
from outrider.drafters.model import ModelDrafter
from outrider.engine.engine import Engine
from outrider.proof.drafters import ContraryDrafter, LikelyDrafter
from outrider.proof.memory import RememberingTarget
from outrider.proof.scenes import BATCH, SUPPORT, Scene
from outrider.proof.variants import Named
from outrider.trees.shape import TreeShape
from outrider.types import LossyRule, Rule

REJECTING: tuple[Rule, ...] = ("rejection", "block", "traversal")

_CHAIN = TreeShape.of_paths([(0,), (0, 0)])
_TREE = TreeShape.of_paths([(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)])
_NODES = 3  # of a draft of the user's drafters

Build = Callable[[Scene], Sequence[Drafter[Any]]]


@dataclass(frozen=True, slots=True)
class Way:
    """A rule, and drafters for a scene. A control is a way whose law is wrong on purpose."""

    name: str
    rule: Rule
    build: Build
    is_control: bool = False
    knows_share: bool = False
    """Whether it is known how often the first draft is accepted."""
    max_draft: int = len(_TREE)
    weight: float = 0.15
    """What a draw takes, in about the time of a token of plain decoding."""
    needs_own_target: bool = False
    lossy: LossyRule | None = None
    """What verifies in place of the rule, where how far the law is off is to be measured."""

    def decoder(self, decoder: Decoder, scene: Scene) -> Decoder:
        """Return a decoder for a scene, of the same target."""
        engine = Engine(
            decoder.engine.target if self.needs_own_target else scene.target,
            self.build(scene),
            rule=self.rule,
            lossy=self.lossy,
            max_draft=self.max_draft,
            max_batch=decoder.engine.max_batch if self.needs_own_target else BATCH,
        )
        return Decoder(engine, decoder.loaded)


def own_ways() -> list[Way]:
    """Return plain decoding, drafts of ours under each rule that rejects, and controls."""
    found = [Way("plain decoding", "match", lambda _: ())]
    for rule in REJECTING:
        shape = _CHAIN if rule == "block" else _TREE
        found.append(Way(f"likely drafts, {rule}", rule, partial(_likely, shape=shape)))
    shapes: list[tuple[str, TreeShape, Rule]] = [
        ("chains", _CHAIN, "rejection"),
        ("trees", _TREE, "rejection"),
        ("chains", _CHAIN, "block"),
        ("trees", _TREE, "traversal"),
    ]
    for kind, shape, rule in shapes:
        name = f"contrary {kind}, {rule}"
        knows_share = rule == "rejection" and kind == "chains"
        build = partial(_contrary, shape=shape, is_false=False)
        found.append(Way(name, rule, build, knows_share=knows_share))
        if not knows_share:
            build = partial(_contrary, shape=shape, is_false=True)
            found.append(Way(f"control: {name}, with a false q", rule, build, is_control=True))
    return found


def ways_of(drafters: Sequence[Named], chains: Sequence[Named]) -> list[Way]:
    """Return the user's drafters under the rules that reject, `chains` under that for chains.

    Lookups are there once: what they draft is worked out, and likely drafts of ours stand for it.
    """
    found = []
    for rule in REJECTING:
        for named in chains if rule == "block" else drafters:
            if rule == "rejection" or not named.drafter.is_lookup:
                found.append(_way_of(named, rule))
    return found


def lossy_ways(drafters: Sequence[Named], rule: LossyRule) -> list[Way]:
    """Return plain decoding, drafts of ours under a lossy rule, and the user's drafters under it.

    Behind the tokens of ours a window of the rule's has room.
    """
    shape = _TREE
    if rule.kind == "fly":
        shape = TreeShape.of_paths((0,) * depth for depth in range(1, int(rule.numbers[0]) + 3))
    ways = [Way("likely drafts", "match", partial(_likely, shape=shape), max_draft=len(shape))]
    if rule.base == "rejection":
        build = partial(_contrary, shape=_CHAIN, is_false=False)
        ways.append(Way("contrary chains", "match", build))
    for named in drafters:
        way = _way_of(named, "match")
        ways.append(replace(way, name=named.name, max_draft=max(_NODES, len(shape))))
    plain = Way("plain decoding", "match", lambda _: ())
    return [plain, *(replace(way, lossy=rule) for way in ways)]


def _way_of(named: Named, rule: Rule) -> Way:
    drafter = _remembering(named.drafter)
    return Way(
        f"{named.name}, {rule}",
        rule,
        lambda _: (drafter,),
        max_draft=_NODES,
        weight=0.1 if drafter.is_lookup else 0.4,
        # It drafts in the target's own sequences.
        needs_own_target=isinstance(drafter, EarlyExitDrafter),
    )


def _likely(scene: Scene, *, shape: TreeShape) -> Sequence[Drafter[Any]]:
    return (LikelyDrafter(scene.target.logits, shape),)


def _contrary(scene: Scene, *, shape: TreeShape, is_false: bool) -> Sequence[Drafter[Any]]:
    logits = scene.target.logits
    return (ContraryDrafter(logits, shape, support=SUPPORT, is_false=is_false),)


def _remembering(drafter: Drafter[Any]) -> Drafter[Any]:
    """Return a drafter whose own model, if it has one, works out each context once."""
    if not isinstance(drafter, ModelDrafter):
        return drafter
    remembering = copy.copy(drafter)
    remembering._model = RememberingTarget(drafter._model)
    return remembering
