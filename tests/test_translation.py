"""The Chinese front page is that of today's README: translated whole, nothing added or left out."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
FENCED = r"^```.*?^```$"


def code(text: str) -> list[str]:
    return re.findall(FENCED, text, flags=re.DOTALL | re.MULTILINE)


def prose(text: str) -> str:
    return re.sub(FENCED, "", text, flags=re.DOTALL | re.MULTILINE)


def levels(text: str) -> list[int]:
    return [len(marks) for marks in re.findall(r"^(#+) ", prose(text), flags=re.MULTILINE)]


def counted(pattern: str, text: str) -> Counter[str]:
    # Sentences are built differently, so what they hold may change places.
    return Counter(re.findall(pattern, prose(text), flags=re.MULTILINE))


def test_it_says_which_text_it_was_made_from() -> None:
    digest = hashlib.sha256(ENGLISH.encode()).hexdigest()[:16]
    assert f"<!-- README.md {digest} -->" in CHINESE, (
        f"README.md has changed: bring README.zh-CN.md up to it, and write {digest} at its top"
    )


def test_headings_and_code_are_the_same_in_the_same_order() -> None:
    assert levels(CHINESE) == levels(ENGLISH)
    assert code(CHINESE) == code(ENGLISH)


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("links", r"\]\(((?!README)[^)]+)\)"),
        ("code in sentences", r"`[^`]+`"),
        ("figures", r"(?<![\w.])\d+(?:[.,]\d+)+x?"),
        ("rows of tables", r"^\|(?=.*\|$)"),
        ("items of lists", r"^- "),
    ],
)
def test_sentences_and_tables_hold_the_same(what: str, pattern: str) -> None:
    ours, theirs = counted(pattern, CHINESE), counted(pattern, ENGLISH)
    assert theirs
    assert ours - theirs == theirs - ours == Counter(), what


def test_each_page_leads_to_the_other() -> None:
    assert "](README.zh-CN.md)" in ENGLISH
    assert "](README.md)" in CHINESE


def test_every_paragraph_is_translated() -> None:
    """A paragraph of English words alone was forgotten."""
    for part in prose(CHINESE).split("\n\n"):
        words = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)|<!--.*?-->|[\W\d_]", "", part)
        assert not words or re.search(r"[\u4e00-\u9fff]", words) or part.startswith("# "), part
