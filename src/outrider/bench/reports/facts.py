"""The facts at the head of a report: what was measured, on what, and with what."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.bench.base import Report


def facts(report: Report) -> tuple[tuple[str, str], ...]:
    """Return names and values; what is not known is left out."""
    return tuple((name, value) for name, value in _facts(report) if value)


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    machine = report.machine
    yield "target", report.target
    yield "workload", f"{report.workload}: {_count(report.prompts, 'prompt')}"
    yield "tasks", ", ".join(report.tasks)
    yield "answers", f"up to {_count(report.max_new_tokens, 'token')} each"
    yield "repeats", str(report.repeats)
    yield "processor", f"{machine.processor}, {_count(machine.cores, 'core')}"
    yield "threads", str(machine.threads)
    yield "accelerator", machine.accelerator or ""
    yield "versions", _versions(machine.versions)
    yield "peers", _versions(report.versions)
    yield "date", report.started.replace("T", " ")


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
