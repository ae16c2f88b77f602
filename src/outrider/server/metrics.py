"""What `/metrics` shows: HTTP requests counted here, all else as the scheduler has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from outrider.engine.histogram import EDGES, Histogram, Tally
from outrider.engine.meter import Snapshot
from outrider.server.record import Record

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics(Collector):
    """Counts HTTP requests, and writes all metrics as Prometheus reads them.

    Ratios are left to the reader, who has both counters: acceptance at a depth is accepted over
    verified there, where "verified" are the tokens whose parent had been accepted.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot | None],
        lossy: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`snapshot` gives the scheduler's counters, None as long as there is no scheduler.

        `lossy` gives the lossy rule that the server was started with, None if there is none.
        """
        self._snapshot = snapshot
        self._lossy_rule = lossy
        self._lossy: Counter[str] = Counter()
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._aborted: Counter[str] = Counter(disconnect=0, slow_reader=0, error=0)
        self._seconds: dict[str, Tally] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def count(self, record: Record, status: int, seconds: float) -> None:
        """Count a request that was answered, or not, in so many seconds."""
        self._requests[record.route, str(status), _kind(record)] += 1
        self._seconds.setdefault(record.route, Tally()).add(seconds)
        if record.aborted is not None:
            self._aborted[record.aborted] += 1
        if record.lossy is not None:
            self._lossy[record.lossy] += 1

    def text(self) -> bytes:
        """Return all metrics."""
        return generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Return nothing: there is no need to collect in order to register."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        yield from self._http()
        yield from self._losses()
        snapshot = self._snapshot()
        if snapshot is not None:
            yield from _load(snapshot)
            yield from _tokens(snapshot)
            yield from _speculation(snapshot)
            yield from _times(snapshot)

    def _http(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "outrider_http_requests",
            "HTTP requests, by route, status and kind of answer.",
            labels=("route", "status", "kind"),
        )
        for labels, count in self._requests.items():
            requests.add_metric(labels, count)
        yield requests
        aborted = CounterMetricFamily(
            "outrider_http_aborted", "Answers not written to their ends.", labels=("reason",)
        )
        for reason, count in self._aborted.items():
            aborted.add_metric((reason,), count)
        yield aborted
        name = "outrider_http_request_seconds"
        seconds = HistogramMetricFamily(name, "Seconds a request took.", labels=("route",))
        for route, tally in self._seconds.items():
            buckets, total = _buckets(tally.histogram())
            seconds.add_metric((route,), buckets, total)
        yield seconds

    def _losses(self) -> Iterator[Metric]:
        """Yield what a server has that was started with a lossy rule, and no other."""
        rule = self._lossy_rule()
        if rule is None:
            return
        count = CounterMetricFamily(
            "outrider_lossy_requests",
            "HTTP requests whose answers are not the target's own, by the lossy rule.",
            labels=("rule",),
        )
        count.add_metric((rule,), self._lossy[rule])
        yield count


def _kind(record: Record) -> str:
    return "stream" if record.facts.get("stream") else "whole"


def _load(snapshot: Snapshot) -> Iterator[Metric]:
    yield _gauge("queue_length", "Requests that wait for a place.", snapshot.queued)
    yield _gauge("active_requests", "Requests that share rounds.", snapshot.running)
    yield _gauge("reading_requests", "Of these, those whose prompts are read.", snapshot.reading)
    yield _gauge("idle_caches", "Caches kept for prompts to come.", snapshot.idle_caches)
    yield _counter("submitted", "Requests taken by the engine.", snapshot.submitted)
    yield _counter("refused", "Requests for which the queue had no room.", snapshot.refused)
    ended = CounterMetricFamily(
        "outrider_ended", "Requests of the engine that ended, by reason.", labels=("reason",)
    )
    reasons = {"stop": 0, "length": 0} | dict(snapshot.finished)
    reasons |= {"failed": snapshot.failed, "cancelled": snapshot.cancelled}
    for reason, count in reasons.items():
        ended.add_metric((reason,), count)
    yield ended


def _tokens(snapshot: Snapshot) -> Iterator[Metric]:
    yield _counter("prompt_tokens", "Tokens of prompts.", snapshot.prompt_tokens)
    yield _counter("reused_tokens", "Of these, those found in a cache.", snapshot.reused_tokens)
    yield _counter("tokens", "Tokens written.", snapshot.tokens)


def _speculation(snapshot: Snapshot) -> Iterator[Metric]:
    rounds = CounterMetricFamily(
        "outrider_rounds",
        "Rounds in which requests decoded, by why they had drafts or had none.",
        labels=("reason",),
    )
    for reason, count in snapshot.rounds_by_reason.items():
        rounds.add_metric((reason,), count)
    yield rounds
    yield _counter("proposed_tokens", "Tokens drafted and scored.", snapshot.proposed)
    yield _counter("accepted_tokens", "Drafted tokens that were accepted.", snapshot.accepted)
    yield _at_depth(
        "proposed", "Tokens scored at a depth of a draft, from 1.", snapshot.proposed_at
    )
    yield _at_depth(
        "verified",
        "Of these, those whose parent was accepted, one a draft: what accepted is a share of.",
        snapshot.attempted_at,
    )
    yield _at_depth("accepted", "Tokens accepted at a depth.", snapshot.accepted_at)
    is_on = float(snapshot.is_speculating)
    yield _gauge("speculating", "Whether the last round had drafts (1) or none (0).", is_on)
    state = GaugeMetricFamily(
        "outrider_speculation_reason",
        "Why the last round had drafts or had none: 1 for the reason that holds.",
        labels=("reason",),
    )
    if snapshot.last_reason is not None:
        state.add_metric((snapshot.last_reason,), 1)
    yield state
    if snapshot.speedup is not None:
        text = "Tokens a second over what the cost model holds for plain decoding."
        yield _gauge("speedup_estimate", text, snapshot.speedup)


def _times(snapshot: Snapshot) -> Iterator[Metric]:
    seconds = CounterMetricFamily(
        "outrider_engine_seconds", "Where the time of rounds went.", labels=("part",)
    )
    for part in ("draft", "score", "prefill", "host"):
        seconds.add_metric((part,), getattr(snapshot, f"{part}_s"))
    yield seconds
    for name, text, histogram in (
        ("queue_seconds", "Seconds from submission to the first round.", snapshot.waiting),
        ("time_to_first_token_seconds", "Seconds to the first token.", snapshot.first_token),
        ("time_per_output_token_seconds", "Seconds a token after the first.", snapshot.per_token),
    ):
        buckets, total = _buckets(histogram)
        yield HistogramMetricFamily(f"outrider_{name}", text, buckets=buckets, sum_value=total)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"outrider_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"outrider_{name}", text, value=value)


def _at_depth(name: str, text: str, counts: Sequence[int]) -> Metric:
    family = CounterMetricFamily(f"outrider_{name}_at_depth", text, labels=("depth",))
    for depth, count in enumerate(counts, 1):
        family.add_metric((str(depth),), count)
    return family


def _buckets(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """Return cumulated counts by upper edge, and the sum."""
    buckets: list[tuple[str, float]] = []
    seen = 0
    for edge, count in zip((*EDGES, float("inf")), histogram.counts, strict=True):
        seen += count
        buckets.append(("+Inf" if edge == float("inf") else f"{edge:g}", seen))
    return buckets, histogram.total
