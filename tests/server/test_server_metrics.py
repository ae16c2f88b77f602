from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving import Running, load_tiny, serving

from outrider.engine.histogram import EDGES
from outrider.server.metrics import Metrics
from outrider.server.record import Record

A_ALONE: dict[str, Any] = {"logit_bias": {"32": 100}, "max_tokens": 60}
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with serving(lambda: load_tiny("suffix", max_draft=3)) as server:
        yield server


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def metrics(running: Running) -> Samples:
    response = running.http.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return samples(response.text)


def at(found: Samples, name: str, **labels: str) -> float:
    return found[f"outrider_{name}", tuple(sorted(labels.items()))]


def at_depths(found: Samples, name: str) -> list[float]:
    depths = [key[1][0][1] for key in found if key[0] == f"outrider_{name}_at_depth_total"]
    assert depths == [str(depth) for depth in range(1, len(depths) + 1)]
    return [at(found, f"{name}_at_depth_total", depth=depth) for depth in depths]


def test_acceptance_at_a_depth_is_a_share_of_what_was_verified_there(running: Running) -> None:
    """SERVE-1."""
    running.chat(**A_ALONE)
    running.chat("abcabc", max_tokens=40)
    found = metrics(running)
    proposed, verified, accepted = (
        at_depths(found, name) for name in ("proposed", "verified", "accepted")
    )
    snapshot = running.service.snapshot
    assert snapshot is not None
    ratios = [a / v for a, v in zip(accepted, verified, strict=True) if v]
    assert ratios == list(snapshot.conditional_acceptance) and ratios
    # A draft is verified deeper only where it was accepted.
    assert verified[1] <= accepted[0] <= verified[0] <= proposed[0]
    assert sum(proposed) == at(found, "proposed_tokens_total")
    assert sum(accepted) == at(found, "accepted_tokens_total")


def test_counts_are_those_of_the_answers(running: Running) -> None:
    before = metrics(running)
    usages = [running.chat(**A_ALONE).json()["usage"], running.complete(n=2).json()["usage"]]
    assert running.chat(temperature=-1).status_code == 400
    after = metrics(running)

    def grown(name: str, **labels: str) -> float:
        key = (f"outrider_{name}", tuple(sorted(labels.items())))
        return after[key] - before.get(key, 0.0)

    assert grown("tokens_total") == sum(usage["completion_tokens"] for usage in usages)
    assert grown("ended_total", reason="length") == 3
    assert grown("submitted_total") == 3
    for counted, told in (("proposed_tokens", "proposed"), ("accepted_tokens", "accepted")):
        assert grown(f"{counted}_total") == sum(usage["speculation"][told] for usage in usages)
    chat = {"route": "/v1/chat/completions", "kind": "whole"}
    assert grown("http_requests_total", status="200", **chat) == 1
    assert grown("http_requests_total", status="400", **chat) == 1
    assert grown("time_to_first_token_seconds_count") == 3
    assert grown("time_per_output_token_seconds_count") == 3
    assert grown("http_request_seconds_count", route="/v1/chat/completions") == 2
    for part in ("draft", "score", "prefill", "host"):
        assert grown("engine_seconds_total", part=part) >= 0
    assert at(after, "queue_length") == at(after, "active_requests") == 0


def test_whether_and_why_drafts_are_made_is_told(running: Running) -> None:
    running.chat(**A_ALONE)
    found = metrics(running)
    assert at(found, "speculation_reason", reason="fixed") == 1
    assert at(found, "speculating") == 1
    assert at(found, "rounds_total", reason="fixed") > 0
    running.chat(max_tokens=5, speculation={"enabled": False})
    found = metrics(running)
    assert at(found, "speculation_reason", reason="switched off") == 1
    assert at(found, "speculating") == 0


def test_buckets_add_up_to_the_count() -> None:
    metrics = Metrics(lambda: None)
    for seconds in (0.0001, 0.3, 0.3, 1000.0):
        metrics.count(Record("a", route="/x"), 200, seconds)
    found = samples(metrics.text().decode())
    name = "outrider_http_request_seconds"
    edges = [*(f"{edge:g}" for edge in EDGES), "+Inf"]
    buckets = [found[f"{name}_bucket", (("le", edge), ("route", "/x"))] for edge in edges]
    assert buckets == sorted(buckets)
    assert buckets[0] == 1 and buckets[edges.index("0.5")] == 3 and buckets[-1] == 4
    assert found[f"{name}_count", (("route", "/x"),)] == 4
    assert found[f"{name}_sum", (("route", "/x"),)] == pytest.approx(1000.6001)


def test_paths_that_clients_make_up_make_no_labels(running: Running) -> None:
    running.http.get("/made/up")
    running.http.get("/v1/models/made/up")
    routes = {dict(labels).get("route") for _, labels in metrics(running)}
    assert not any(route is not None and "made" in route for route in routes)
    assert {"unknown", "/v1/models/{name:path}"} <= routes
