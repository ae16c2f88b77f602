"""The figures of docs/scale.md are what the script computes."""

from __future__ import annotations

import runpy
from pathlib import Path

from outrider.scale.lengths import DEFAULTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")


def test_every_computed_table_is_on_the_page() -> None:
    roofline = runpy.run_path(str(ROOT / "benchmarks" / "roofline.py"))
    for title, table in roofline["tables"]().items():
        assert table in PAGE, title


def test_the_lengths_of_the_page_are_those_without_a_profile() -> None:
    assert "(`eagle` 3, `model` and `ngram` 5)" in PAGE
    assert (DEFAULTS["eagle3"].length, DEFAULTS["draft_model"].length) == (3, 5)
    assert DEFAULTS["ngram"].length == 5
    suffix = DEFAULTS["suffix"]
    assert f"up to {suffix.length} tokens of a chance of {suffix.least_chance}" in PAGE
