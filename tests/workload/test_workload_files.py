from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outrider.errors import OptionError
from outrider.workload.files import default_workload, limited, read_workload


def write(folder: Path, *rows: Any, name: str = "prompts.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    return path


def test_each_shape_of_a_line_is_read(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    found = read_workload(
        write(
            tmp_path,
            {"prompt": "One"},
            "",
            {"messages": messages, "id": 7, "task": "chat"},
            {"id": "small-01", "task": "edit", "turns": ["First", "Second"], "licence": "MIT"},
        )
    )
    assert [(p.id, p.task, p.prompt) for p in found] == [
        ("1", "all", "One"),
        ("7", "chat", tuple(messages)),
        ("small-01", "edit", "First"),
    ]


def test_a_question_of_spec_bench_is_read_its_category_being_its_task(tmp_path: Path) -> None:
    row = {"question_id": 81, "category": "writing", "turns": ["Compose a post.", "Shorten it."]}
    (found,) = read_workload(write(tmp_path, row))
    assert (found.id, found.task, found.prompt) == ("81", "writing", "Compose a post.")


def test_a_text_file_is_a_prompt_a_line(tmp_path: Path) -> None:
    found = read_workload(write(tmp_path, "One", "", "{not json", name="prompts.txt"))
    assert [(p.id, p.prompt) for p in found] == [("1", "One"), ("3", "{not json")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "2 is no JSON"),
        ([1], "2 is no object with a prompt"),
        ({"text": "x"}, "needs one of prompt, messages and turns; it has none"),
        ({"prompt": "x", "turns": ["y"]}, "it has prompt and turns"),
        ({"prompt": ""}, "prompt is ''; it must be a text"),
        ({"prompt": 5}, "prompt is 5; it must be a text"),
        ({"turns": []}, r"turns is \[\]; it must be a list of texts"),
        ({"messages": [{"role": "user"}]}, "it must be a list of objects"),
    ],
)
def test_a_wrong_line_is_one_error_naming_file_and_line(
    tmp_path: Path, row: Any, message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        read_workload(write(tmp_path, {"prompt": "fine"}, row))


def test_a_workload_without_prompts_or_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="holds no prompts"):
        read_workload(write(tmp_path, "", ""))
    with pytest.raises(OptionError, match="cannot be read: No such file"):
        read_workload(tmp_path / "missing")


def test_our_own_prompts_are_of_six_tasks_in_turn() -> None:
    prompts = default_workload()
    assert len(prompts) == 18
    assert len({p.id for p in prompts}) == len({p.prompt for p in prompts}) == 18
    tasks = ["chat", "code", "math", "summarize", "edit", "retrieval"]
    assert [p.task for p in prompts] == 3 * tasks
    assert [p.id for p in prompts[5:8]] == ["retrieval-1", "chat-2", "code-2"]


def test_a_limit_keeps_the_first_prompts() -> None:
    prompts = default_workload()
    assert limited(prompts, 2) == prompts[:2]
    assert limited(prompts, None) == limited(prompts, 99) == prompts
    with pytest.raises(OptionError, match="limit is 0"):
        limited(prompts, 0)
