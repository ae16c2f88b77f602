"""Which of several ways of drafting with one model brings more, as measured."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from outrider.drafters.spec import Way

_MEMORY = 0.98  # a draft's weight in what is known, one draft later
_FEW = 3  # drafts that each way is tried with before they are compared
_BETWEEN = 32  # drafts from one that is made in another way than the best to the next


@dataclass(slots=True)
class _Record:
    """How the drafts of one way have fared, recent ones counting most."""

    drafts: int = 0
    passes: float = 0.0
    drafted: float = 0.0
    accepted: float = 0.0
    rejected: float = 0.0

    def learn(self, passes: int, drafted: int, accepted: int, *, is_refuted: bool) -> None:
        self.drafts += 1
        self.passes = _MEMORY * self.passes + passes
        self.drafted = _MEMORY * self.drafted + drafted
        self.accepted = _MEMORY * self.accepted + accepted
        self.rejected = _MEMORY * self.rejected + is_refuted

    def gain(self, passes: float) -> float:
        """Return the tokens that so many passes of the model are expected to bring."""
        judged = self.accepted + self.rejected
        rate = min(0.999, self.accepted / judged) if judged else 0.0
        length = passes * self.drafted / self.passes if self.passes else 0.0
        # rate + rate^2 + ...: each token is worth something only if those before are right.
        return float(rate * (1 - rate**length) / (1 - rate))


class WayChoice:
    """Chooses how the next draft is made, from what was accepted of those before.

    Ways are compared by the tokens that they bring for the same passes of the model, apart for
    each `kind` of request (greedy or drawn, and how it is verified). Only drafts that are over
    have a say, so a draft that is drawn at random may follow.
    """

    __slots__ = ("_records", "_since", "ways")

    def __init__(self, ways: Sequence[Way]) -> None:
        self.ways = tuple(ways)
        self._records: dict[Hashable, dict[Way, _Record]] = {}
        self._since: dict[Hashable, int] = {}

    def choose(self, kind: Hashable) -> Way:
        """Return how the next draft for a request of this kind is to be made."""
        records = self._of(kind)
        rarest = min(self.ways, key=lambda way: records[way].drafts)
        if len(self.ways) == 1 or records[rarest].drafts < _FEW:
            return rarest
        # The same for all, about as many as drafts have: no way is judged by its own lengths.
        passes = sum(one.passes for one in records.values())
        passes /= sum(min(one.drafts, 1 / (1 - _MEMORY)) for one in records.values())
        ranked = sorted(self.ways, key=lambda way: -records[way].gain(passes))
        since = self._since[kind] = self._since.get(kind, 0) + 1
        return ranked[1 if since % _BETWEEN == 0 else 0]

    def learn(
        self, kind: Hashable, way: Way, *, passes: int, drafted: int, accepted: int, refuted: bool
    ) -> None:
        """Take note of a draft that is over.

        It took so many passes and had so many tokens, of which the first `accepted` came true; it
        is `refuted` if the one after them did not, or if there was none where some were wanted.
        """
        self._of(kind)[way].learn(passes, drafted, accepted, is_refuted=refuted)

    def _of(self, kind: Hashable) -> dict[Way, _Record]:
        return self._records.setdefault(kind, {way: _Record() for way in self.ways})
