"""Drafts copied from the output the user expects, such as the file that is to be edited."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.survival import HORIZON, Survival
from outrider.errors import OptionError
from outrider.types import NO_DRAFT, DraftTree, TokenIds

if TYPE_CHECKING:
    from torch import Tensor

_TRUST = 4  # agreeing tokens the user's word is worth before anything is emitted
_LONGEST_LOOK_BACK = 32  # tokens of output compared to find a place in the prediction
_PLACES_AFTER, _PLACES_BEFORE = 32, 8  # places compared, on either side of the last sure one


class PredictionState:
    """One request's place in its predicted output."""

    __slots__ = ("_anchor", "_output", "_places", "at", "matched", "prediction", "survival")

    def __init__(self, prediction: tuple[int, ...]) -> None:
        self.prediction = prediction
        self.survival = Survival()
        self.at = 0
        """Index of the predicted token that comes next, if the output follows the prediction."""
        self.matched = _TRUST
        """How many of the last output tokens agree with the prediction before `at`."""
        self._anchor = 0  # the place after the last agreement before the output left it
        self._output: list[int] = []
        self._places: dict[int, list[int]] = {}
        for place, token in enumerate(prediction, 1):
            self._places.setdefault(token, []).append(place)

    def observe(self, token: int) -> None:
        """Follow the output by one token, and find it in the prediction again if it strays."""
        self._output.append(token)
        right = False
        if self.at < len(self.prediction):
            right = self.prediction[self.at] == token
            self.survival.learn(self.matched, right=right)
        if right:
            self.at += 1
            self.matched += 1
        else:
            self._realign(token)

    def _realign(self, token: int) -> None:
        """Go where the output's longest suffix stands in the prediction, at best just ahead.

        If its last token stands nowhere, it is taken to replace the one that was predicted.
        """
        if self.matched > 1:
            self._anchor = self.at
        places = self._places.get(token, [])
        middle = bisect_left(places, self._anchor + 1)
        ahead = places[middle : middle + _PLACES_AFTER]
        behind = places[max(0, middle - _PLACES_BEFORE) : middle]
        self.at, self.matched = self._anchor + 1, 0
        for place in (*ahead, *reversed(behind)):
            agreeing = self._agreement(place)
            if agreeing > self.matched:
                self.at, self.matched = place, agreeing

    def _agreement(self, place: int) -> int:
        """Return how many of the latest output tokens stand just before `place`."""
        output, prediction = self._output, self.prediction
        most = min(place, len(output), _LONGEST_LOOK_BACK)
        agreeing = 0
        while agreeing < most and prediction[place - 1 - agreeing] == output[-1 - agreeing]:
            agreeing += 1
        return agreeing


class PredictionDrafter(Drafter[PredictionState]):
    """Copies the output the user expects, from where the output has come to in it.

    After an edit the place is found again by the longest suffix of the output that stands in the
    prediction, the nearest ahead first. `length` is the most tokens a draft may have; it ends
    earlier where a token's chance of being accepted falls below `min_probability`. A request
    without a prediction gets no drafts.
    """

    name = "prediction"
    needs_prediction = True
    is_lookup = True
    default_max_draft = HORIZON

    def __init__(self, *, length: int = HORIZON, min_probability: float = 0.01) -> None:
        if length < 1:
            raise OptionError(f"length is {length}, must be at least 1")
        if not 0 <= min_probability <= 1:
            raise OptionError(f"min_probability is {min_probability}, must be 0 to 1")
        self._length = length
        self._min_probability = min_probability

    def begin(self, request: DraftRequest) -> PredictionState:
        """Index the prediction, and trust that the output begins as it does."""
        return PredictionState(request.prediction_ids or ())

    def propose(self, states: Sequence[PredictionState], budgets: Sequence[int]) -> list[DraftTree]:
        """Copy for each request what comes next in its prediction."""
        return [
            self._draft(state, min(budget, self._length)) if budget > 0 else NO_DRAFT
            for state, budget in zip(states, budgets, strict=True)
        ]

    def observe(
        self,
        states: Sequence[PredictionState],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor] = (),
    ) -> None:
        """Follow the committed tokens through the predictions."""
        for state, tokens in zip(states, committed, strict=True):
            if state.prediction:
                for token in tokens:
                    state.observe(token)

    def _draft(self, state: PredictionState, limit: int) -> DraftTree:
        at, matched = state.at, state.matched
        chances: list[float] = []
        reached = 1.0
        for step in range(min(len(state.prediction) - at, limit)):
            reached *= state.survival.rate(matched + step)
            if reached < self._min_probability:
                break
            chances.append(reached)
        if not chances:
            return NO_DRAFT
        return DraftTree.chain(state.prediction[at : at + len(chances)], chances=chances)
