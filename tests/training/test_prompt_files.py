from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing

from outrider.errors import OptionError, PromptError
from outrider.training.base import Sample
from outrider.training.prompts import (
    encode_conversations,
    prompt_key,
    read_prompts,
    read_texts,
)
from support.files import word_tokenizer

TEMPLATE = (
    "{% for m in messages %}{{ 'w1 ' if m.role == 'user' else 'w2 ' }}{{ m.content }} {% endfor %}"
    "{% if add_generation_prompt %}w3{% endif %}"
)


def write(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    return path


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_a_prompt_ends_with_what_the_user_said_last(tmp_path: Path) -> None:
    system, reply = {"role": "system", "content": "s"}, {"role": "assistant", "content": "a"}
    path = write(
        tmp_path / "prompts.jsonl",
        {"prompt": "one"},
        {"turns": ["first", "second"]},
        {"messages": [system, user("x"), reply, user("y"), reply]},
    )
    assert read_prompts(path) == [
        (user("one"),),
        (user("first"),),
        (system, user("x"), reply, user("y")),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", r"prompts\.jsonl:2 is no JSON"),
        ({"text": "x"}, r"prompts\.jsonl:2 needs one of prompt, messages and turns"),
        ({"prompt": ""}, r"prompts\.jsonl:2: prompt is ''; it must be a text"),
        ({"messages": [{"role": "system", "content": "s"}]}, "prompt 2 holds no message of"),
    ],
)
def test_a_wrong_prompt_is_named_by_file_and_line(tmp_path: Path, row: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read_prompts(write(tmp_path / "prompts.jsonl", {"prompt": "fine"}, row))


def test_a_file_without_prompts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="holds no prompts"):
        read_prompts(write(tmp_path / "prompts.jsonl", "", ""))


def test_prompts_are_encoded_as_serving_would(tmp_path: Path) -> None:
    chat: Any = word_tokenizer()
    chat.chat_template = TEMPLATE
    one, two = (user("w9"),), (user("w9"), {"role": "assistant", "content": "w8"}, user("w7"))
    assert encode_conversations([one, two], chat) == [(1, 9, 3), (1, 9, 2, 8, 1, 7, 3)]
    assert encode_conversations([one], word_tokenizer()) == [(9,)]
    with pytest.raises(PromptError, match="prompt 2: the model has no chat template"):
        encode_conversations([one, two], word_tokenizer())


def test_keys_tell_prompts_apart_and_never_change() -> None:
    prompts = [(1, 2), (12,), (2, 1), (1, 2, 0), (1,)]
    assert len({prompt_key(prompt) for prompt in prompts}) == len(prompts)
    assert prompt_key([1, 2]) == prompt_key((1, 2)) == "17f8af97ad4a7f7639a4c917"


def test_a_text_is_cut_into_pieces_that_lose_nothing(tmp_path: Path) -> None:
    ids = tuple(range(1, 24))
    path = write(tmp_path / "text.md", " ".join(f"w{token}" for token in ids))
    pieces = list(read_texts(path, word_tokenizer(), max_tokens=5))
    assert [len(piece.ids) for piece in pieces] == [5, 5, 5, 5, 3]
    assert sum((piece.ids for piece in pieces), ()) == ids
    assert {piece.prompt_tokens for piece in pieces} == {0}


def test_each_piece_begins_as_the_tokenizer_begins_a_text(tmp_path: Path) -> None:
    tokenizer = word_tokenizer()
    tokenizer.bos_token = "w7"
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="w7 $A", special_tokens=[("w7", 7)]
    )
    path = write(tmp_path / "text.txt", "w1 w2 w3")
    pieces = [piece.ids for piece in read_texts(path, tokenizer, max_tokens=3)]
    assert pieces == [(7, 1, 2), (7, 3)]


def test_a_folder_is_read_whole_in_the_order_of_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / ".hidden").mkdir()
    write(tmp_path / "b" / "two.py", "w2")
    write(tmp_path / "a.txt", "w1")
    write(tmp_path / "c.jsonl", {"text": "w3"}, "", {"text": "w4"})
    write(tmp_path / ".hidden" / "no.txt", "w5")
    write(tmp_path / "image.png", "w6")
    write(tmp_path / "empty.py", "")
    (tmp_path / "latin.txt").write_bytes("w7 \xe9".encode("latin-1"))
    with caplog.at_level(logging.WARNING, logger="outrider"):
        found = list(read_texts(tmp_path, word_tokenizer()))
    assert found == [Sample((token,)) for token in (1, 2, 3, 4)]
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'latin.txt'} is not UTF-8 and was left out"
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"", "'.*x.txt' holds no text"),
        ("x.txt", b"\xff", "'.*x.txt' is not UTF-8"),
        ("x.jsonl", b'{"text": "w1"}\n{"prompt": "w1"}', r"x\.jsonl:2 holds no text; expected"),
        ("x.jsonl", b"{", r"x\.jsonl:1 is no JSON"),
    ],
)
def test_a_wrong_text_is_named_by_file_and_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(OptionError, match=message):
        list(read_texts(tmp_path / name, word_tokenizer()))


def test_what_is_not_there_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot be read: No such file"):
        list(read_texts(tmp_path / "none.txt", word_tokenizer()))
    with pytest.raises(OptionError, match="max_tokens is 1, must be at least 2"):
        list(read_texts(tmp_path, word_tokenizer(), max_tokens=1))


def test_line_separators_inside_a_json_text_end_no_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"text": "w1 \u2028 w2"}, ensure_ascii=False), encoding="utf-8")
    (found,) = read_texts(path, word_tokenizer())
    assert found.ids[0] == 1 and found.ids[-1] == 2
