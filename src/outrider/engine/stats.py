"""What a request cost and how its drafts fared: counters only, rates derived when read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.engine.choices import PLAIN, Choice, Forecast, total
from outrider.engine.stopwatch import RoundSeconds
from outrider.trees.layout import children, depths
from outrider.types import DraftTree


@dataclass(slots=True)
class Stats:
    """Counters of one request. Times are seconds of the rounds it took part in.

    In a batch each request counts the whole of its rounds: that is how long it took for them.
    """

    prompt_tokens: int = 0
    reused_tokens: int = 0
    """Prompt tokens whose keys and values an earlier turn had left in the cache."""
    tokens: int = 0
    """Tokens emitted."""
    rounds: int = 0
    """Target passes that emitted something; the first one also read the prompt."""
    proposed: int = 0
    accepted: int = 0
    proposed_at: list[int] = field(default_factory=list)
    """Nodes proposed at depth 1, 2, ..."""
    attempted_at: list[int] = field(default_factory=list)
    """Rounds that verified a node at depth 1, 2, ...: its parent had been accepted."""
    accepted_at: list[int] = field(default_factory=list)
    prefill_s: float = 0.0
    """The target's passes up to the first token."""
    draft_s: float = 0.0
    score_s: float = 0.0
    """The target's passes of the later rounds."""
    host_s: float = 0.0
    lossy: str | None = None
    """The lossy rule that verified its drafts, if one did: then its text is not the target's."""
    drafter_error: str | None = None
    """Why the drafter was dropped, if it raised."""
    choices: dict[tuple[str, int], Choice] = field(default_factory=dict)
    """What each drafter and length was expected to bring, and brought."""

    def record(self, tree: DraftTree, path: Sequence[int], emitted: int, *, cut: bool) -> None:
        """Count one verified round; `cut` says the request ended on the last node of `path`."""
        self.rounds += 1
        self.tokens += emitted
        self.proposed += len(tree)
        self.accepted += len(path)
        if not tree.tokens:
            return
        levels = depths(tree)
        for counter in (self.proposed_at, self.attempted_at, self.accepted_at):
            counter.extend([0] * (max(levels) - len(counter)))
        for level in levels:
            self.proposed_at[level - 1] += 1
        for level in range(len(path)):
            self.attempted_at[level] += 1
            self.accepted_at[level] += 1
        last = path[-1] + 1 if path else 0
        if not cut and children(tree)[last]:
            self.attempted_at[len(path)] += 1

    def add(self, other: Stats) -> None:
        """Add the counts of tokens, rounds and drafts of another request; times stay apart."""
        for name in ("prompt_tokens", "reused_tokens", "tokens", "rounds", "proposed", "accepted"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        deepest = max(len(self.proposed_at), len(other.proposed_at))
        for ours, theirs in (
            (self.proposed_at, other.proposed_at),
            (self.attempted_at, other.attempted_at),
            (self.accepted_at, other.accepted_at),
        ):
            ours.extend([0] * (deepest - len(ours)))
            for depth, count in enumerate(theirs[:deepest]):
                ours[depth] += count

    def record_seconds(self, seconds: RoundSeconds, *, is_first: bool) -> None:
        """Count the time of a round, one up to the first token or a later one."""
        scored_s = seconds.prefill_s + seconds.score_s
        if is_first:
            self.prefill_s += scored_s
        else:
            self.score_s += scored_s
        self.draft_s += seconds.draft_s
        self.host_s += seconds.host_s

    def record_choice(self, forecast: Forecast, drafted: int, tokens: int, seconds: float) -> None:
        """Count a round that read no prompt, by the drafter and the length chosen for it."""
        drafter = forecast.drafter if drafted else PLAIN
        choice = self.choices.get((drafter, drafted))
        if choice is None:
            choice = self.choices[drafter, drafted] = Choice(drafter, drafted)
        choice.record(forecast, tokens, seconds)

    def explain(self) -> list[Choice]:
        """Return the choices that were made, those of most rounds first."""
        return sorted(self.choices.values(), key=lambda choice: -choice.rounds)

    @property
    def predicted_speedup(self) -> float | None:
        """Tokens a second over those of plain decoding, as the cost model expected; no prompt."""
        return total(self.choices.values()).predicted_gain

    @property
    def realised_speedup(self) -> float | None:
        """Tokens a second over what the cost model holds for plain decoding; no prompt."""
        return total(self.choices.values()).gain

    @property
    def wall_s(self) -> float:
        """All the time the request took, its prompt included."""
        return self.prefill_s + self.draft_s + self.score_s + self.host_s

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens emitted per second of `wall_s`."""
        return self.tokens / self.wall_s if self.wall_s else None

    @property
    def acceptance_length(self) -> float | None:
        """Tokens emitted per target pass, the recovered or bonus token included (tau)."""
        return self.tokens / self.rounds if self.rounds else None

    @property
    def acceptance_rate(self) -> float | None:
        """Share of the proposed tokens that were accepted (alpha)."""
        return self.accepted / self.proposed if self.proposed else None

    @property
    def accepted_per_depth(self) -> tuple[float, ...]:
        """Accepted over proposed, at depth 1, 2, ..."""
        return ratios(self.accepted_at, self.proposed_at)

    @property
    def conditional_acceptance(self) -> tuple[float, ...]:
        """Accepted over proposed with an accepted parent, at depth 1, 2, ..."""
        return ratios(self.accepted_at, self.attempted_at)

    def to_dict(self) -> dict[str, Any]:
        """Return counters and rates as plain values, ready for JSON."""
        counters = {name: getattr(self, name) for name in self.__dataclass_fields__}
        counters["choices"] = [choice.to_dict() for choice in self.explain()]
        rates = (
            "wall_s",
            "tokens_per_second",
            "acceptance_length",
            "acceptance_rate",
            "accepted_per_depth",
            "conditional_acceptance",
            "predicted_speedup",
            "realised_speedup",
        )
        return counters | {name: getattr(self, name) for name in rates}


def ratios(counts: Sequence[int], totals: Sequence[int]) -> tuple[float, ...]:
    """Return counts over totals, depth by depth."""
    # Depths nobody reached come last and have no ratio to give.
    return tuple(count / total for count, total in zip(counts, totals, strict=True) if total)
