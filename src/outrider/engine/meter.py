"""Counters of a scheduler: what it took, what it did, how long that took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock

from outrider.engine.choices import Choice, Why, total
from outrider.engine.histogram import Histogram, Tally
from outrider.engine.rounds import Round
from outrider.engine.stats import Stats, ratios

_MEMORY = 0.9  # of what a request takes, one request later
_UNKNOWN_S = 1.0  # what a request is taken to need before one has ended


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All counters at one moment, a round under way counted in part. Times are seconds."""

    queued: int
    running: int
    reading: int
    """Of those that run, the ones whose prompts are not read yet."""
    idle_caches: int
    submitted: int
    refused: int
    """For want of room in the queue; not among those submitted."""
    finished: Mapping[str, int]
    """By reason: "stop" and "length"."""
    failed: int
    cancelled: int
    rounds: int
    """In which at least one request decoded; each may serve many requests."""
    rounds_by_reason: Mapping[Why, int]
    """Why rounds had drafts or had none."""
    last_reason: Why | None
    prompt_tokens: int
    """Of all requests that ran or run."""
    reused_tokens: int
    """Prompt tokens that were in a cache already."""
    tokens: int
    """Tokens emitted."""
    proposed: int
    accepted: int
    proposed_at: tuple[int, ...]
    """Nodes proposed at depth 1, 2, ..."""
    attempted_at: tuple[int, ...]
    """Verified nodes at depth 1, 2, ... whose parent was accepted, at most one a round."""
    accepted_at: tuple[int, ...]
    draft_s: float
    score_s: float
    prefill_s: float
    """Inside the target, on prompts that had passes to themselves."""
    host_s: float
    waiting: Histogram
    """From submission to the first round, of each request that ran."""
    first_token: Histogram
    """From submission to the first token."""
    per_token: Histogram
    """Seconds a token after the first, of each request that finished with more than one."""
    speedup: float | None
    """Tokens a second over what the cost model holds for plain decoding, prompts left out."""

    @property
    def is_speculating(self) -> bool:
        """Whether the last round that decoded had drafts."""
        return self.last_reason in ("pays", "fixed", "trial")

    @property
    def accepted_per_depth(self) -> tuple[float, ...]:
        """Accepted over proposed, at depth 1, 2, ..."""
        return ratios(self.accepted_at, self.proposed_at)

    @property
    def conditional_acceptance(self) -> tuple[float, ...]:
        """Accepted over proposed with an accepted parent, at depth 1, 2, ..."""
        return ratios(self.accepted_at, self.attempted_at)


@dataclass(slots=True)
class _Times:
    draft_s: float = 0.0
    score_s: float = 0.0
    prefill_s: float = 0.0
    host_s: float = 0.0


@dataclass(slots=True)
class _Counts:
    submitted: int = 0
    refused: int = 0
    failed: int = 0
    cancelled: int = 0
    rounds: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    reasons: Counter[Why] = field(default_factory=Counter)


class Meter:
    """Takes note of everything a scheduler does; safe to read from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = _Counts()
        self._times = _Times()
        self._ended = Stats()
        self._choices = Choice("all", 0)
        self._last: Why | None = None
        self._waiting, self._first, self._per_token = Tally(), Tally(), Tally()
        self._service_s: float | None = None

    def submit(self) -> None:
        """Count a request that was taken."""
        with self._lock:
            self._counts.submitted += 1

    def refuse(self) -> None:
        """Count a request for which there was no room."""
        with self._lock:
            self._counts.refused += 1

    def admit(self, waited_s: float) -> None:
        """Count a request that begins to run."""
        with self._lock:
            self._waiting.add(waited_s)

    def record(self, done: Round) -> None:
        """Count a round."""
        seconds, times = done.seconds, self._times
        with self._lock:
            times.draft_s += seconds.draft_s
            times.score_s += seconds.score_s
            times.prefill_s += seconds.prefill_s
            times.host_s += seconds.host_s
            if done.decision is not None:
                self._counts.rounds += 1
                self._counts.reasons[done.decision.why] += 1
                self._last = done.decision.why

    def begin(self, first_s: float) -> None:
        """Count a first token, so long after its request was submitted."""
        with self._lock:
            self._first.add(first_s)

    def finish(self, reason: str, per_token_s: float | None, service_s: float) -> None:
        """Count a request that ran to its end in so many seconds."""
        with self._lock:
            self._counts.finished[reason] += 1
            if per_token_s is not None:
                self._per_token.add(per_token_s)
            known = service_s if self._service_s is None else self._service_s
            self._service_s = _MEMORY * known + (1 - _MEMORY) * service_s

    def fail(self) -> None:
        """Count a request that ended with an error."""
        with self._lock:
            self._counts.failed += 1

    def cancel(self) -> None:
        """Count a request that was cancelled."""
        with self._lock:
            self._counts.cancelled += 1

    def settle(self, stats: Stats) -> None:
        """Take over the counters of a request that has ended, in whatever way."""
        with self._lock:
            self._ended.add(stats)
            self._choices = total([self._choices, *stats.choices.values()])

    def seconds_to_room(self, places: int) -> float:
        """Estimate the seconds until one of so many running requests ends."""
        with self._lock:
            return (_UNKNOWN_S if self._service_s is None else self._service_s) / places

    def snapshot(
        self, running: list[Stats], *, queued: int, reading: int, idle_caches: int
    ) -> Snapshot:
        """Return all counters, those of running requests included."""
        with self._lock:
            counts, times = self._counts, self._times
            sums = Stats()
            for stats in (self._ended, *running):
                sums.add(stats)
            choices = (choice for stats in running for choice in list(stats.choices.values()))
            return Snapshot(
                queued=queued,
                running=len(running),
                reading=reading,
                idle_caches=idle_caches,
                submitted=counts.submitted,
                refused=counts.refused,
                finished=dict(counts.finished),
                failed=counts.failed,
                cancelled=counts.cancelled,
                rounds=counts.rounds,
                rounds_by_reason=dict(counts.reasons),
                last_reason=self._last,
                prompt_tokens=sums.prompt_tokens,
                reused_tokens=sums.reused_tokens,
                tokens=sums.tokens,
                proposed=sums.proposed,
                accepted=sums.accepted,
                proposed_at=tuple(sums.proposed_at),
                attempted_at=tuple(sums.attempted_at),
                accepted_at=tuple(sums.accepted_at),
                draft_s=times.draft_s,
                score_s=times.score_s,
                prefill_s=times.prefill_s,
                host_s=times.host_s,
                waiting=self._waiting.histogram(),
                first_token=self._first.histogram(),
                per_token=self._per_token.histogram(),
                speedup=total([self._choices, *choices]).gain,
            )
