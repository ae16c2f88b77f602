"""The prompts drafters are tried on: a file of the user's, or those that come with outrider."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from outrider.errors import OptionError
from outrider.workload.prompts import PROMPTS

Messages: TypeAlias = tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True)
class WorkloadPrompt:
    """One request of a workload: a text or chat messages, and what it is called."""

    id: str
    prompt: str | Messages
    task: str = "all"


def default_workload() -> tuple[WorkloadPrompt, ...]:
    """Return the prompts that come with outrider, their tasks in turn."""
    num_tasks = len({task for task, _ in PROMPTS})
    return tuple(
        WorkloadPrompt(f"{task}-{index // num_tasks + 1}", prompt, task)
        for index, (task, prompt) in enumerate(PROMPTS)
    )


def read_workload(path: Path) -> tuple[WorkloadPrompt, ...]:
    """Read prompts from a file: `.jsonl` holds one object a line, any other one prompt a line.

    An object has a `prompt` (text), `messages` (role and content each) or `turns` (texts of the
    user, of which the first is decoded), and may have an `id` and a `task`, or a `question_id` and
    a `category` as in Spec-Bench. Raises OptionError.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"the workload {str(path)!r} cannot be read: {reason}") from error
    is_json = path.suffix in (".jsonl", ".json")
    prompts = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            place = f"{path}:{number}"
            prompts.append(_parse(line, number, place) if is_json else _plain(line, number))
    if not prompts:
        raise OptionError(f"the workload {str(path)!r} holds no prompts")
    return tuple(prompts)


def limited(prompts: Sequence[WorkloadPrompt], limit: int | None) -> tuple[WorkloadPrompt, ...]:
    """Return the first `limit` prompts, all if None; raises OptionError for a limit below 1."""
    if limit is not None and limit < 1:
        raise OptionError(f"limit is {limit}; it must be an integer of at least 1")
    return tuple(prompts[:limit])


def _plain(line: str, number: int) -> WorkloadPrompt:
    return WorkloadPrompt(str(number), line)


def _parse(line: str, number: int, place: str) -> WorkloadPrompt:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise OptionError(f"{place} is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise OptionError(f"{place} is no object with a prompt")
    kinds = [name for name in ("prompt", "messages", "turns") if name in row]
    if len(kinds) != 1:
        found = " and ".join(kinds) or "none"
        raise OptionError(f"{place} needs one of prompt, messages and turns; it has {found}")
    prompt = _prompt(kinds[0], row[kinds[0]])
    if prompt is None:
        wanted = {
            "prompt": "a text",
            "messages": "a list of objects with a role and a content",
            "turns": "a list of texts",
        }[kinds[0]]
        raise OptionError(f"{place}: {kinds[0]} is {row[kinds[0]]!r}; it must be {wanted}")
    name = row.get("id", row.get("question_id", number))
    return WorkloadPrompt(str(name), prompt, str(row.get("task", row.get("category", "all"))))


def _prompt(kind: str, value: Any) -> str | Messages | None:
    if kind == "prompt":
        return value if isinstance(value, str) and value else None
    if not isinstance(value, list) or not value:
        return None
    if kind == "turns":
        return value[0] if isinstance(value[0], str) and value[0] else None
    texts = [
        isinstance(message, dict)
        and all(isinstance(message.get(name), str) for name in ("role", "content"))
        for message in value
    ]
    return tuple(value) if all(texts) else None
