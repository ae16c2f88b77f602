"""The suffix drafter in vLLM's place for proposers: it drafts what the drafter would."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from outrider.drafters.base import DraftRequest
from outrider.drafters.suffix import SuffixDrafter
from outrider.scale import proposer as proposing
from outrider.scale.proposer import SuffixProposer
from outrider.scale.schedule import KEY, Span, to_values

MOST_TOKENS = 64


def build(*spans: Span) -> SuffixProposer:
    schedule = spans or (Span(1, 1, 5, 0.01),)
    config = SimpleNamespace(
        additional_config={KEY: to_values(schedule)},
        model_config=SimpleNamespace(max_model_len=MOST_TOKENS),
    )
    return SuffixProposer(config)


def propose(
    proposer: SuffixProposer, texts: Sequence[Sequence[int]], *, waiting: Sequence[int] = ()
) -> list[list[int]]:
    """Show texts as vLLM does; rows that are `waiting` have sampled nothing."""
    ids = np.zeros((len(texts), MOST_TOKENS), dtype=np.int32)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text
    lengths = np.array([len(text) for text in texts], dtype=np.int32)
    sampled = [[] if row in waiting else [text[-1]] for row, text in enumerate(texts)]
    return proposer.propose(sampled, lengths, ids, slot_mappings=None)


def expected(text: Sequence[int], begun: int, span: Span) -> list[int]:
    """Return the draft of a drafter that began with the first tokens of a text and read the rest.

    What has been learnt of copies depends on where a text was begun, so that has to be the same.
    """
    drafter = SuffixDrafter(length=span.length, min_probability=span.least_chance, branches=False)
    sampler: Any = None
    state = drafter.begin(DraftRequest(tuple(text[:begun]), MOST_TOKENS, sampler))
    drafter.observe([state], [list(text[begun:])])
    budget = min(span.length, MOST_TOKENS - len(text) - 1)
    return list(drafter.propose([state], [budget])[0].tokens)


def test_drafts_are_those_of_the_drafter_while_requests_come_move_and_go() -> None:
    span = Span(1, 1, 5, 0.01)
    proposer, draw = build(span), random.Random(0)
    texts: dict[int, list[int]] = {}
    begun: dict[int, int] = {}
    rows: list[int] = []
    seen = 0
    for step in range(200):
        if len(rows) < 4 and draw.random() < 0.5:
            texts[step] = [draw.randrange(3) for _ in range(draw.randrange(1, 12))]
            rows.append(step)
        if rows and draw.random() < 0.1:
            rows.remove(draw.choice(rows))
        if draw.random() < 0.2:
            draw.shuffle(rows)
        rows = [row for row in rows if len(texts[row]) < MOST_TOKENS - 4]
        for row in rows:
            texts[row] += [draw.randrange(3) for _ in range(draw.randrange(1, 4))]
            begun.setdefault(row, len(texts[row]))
        found = propose(proposer, [texts[row] for row in rows])
        wanted = [expected(texts[row], begun[row], span) for row in rows]
        assert found == wanted
        seen += sum(map(len, found))
    assert seen > 100


def test_a_request_that_was_put_off_is_not_read_again(monkeypatch: Any) -> None:
    proposer = build()
    one, other = [1, 2, 3, 1, 2], [4, 5, 6, 4, 5]
    propose(proposer, [one, other])
    monkeypatch.setattr(proposer, "_begin", lambda tokens: 1 / 0)
    propose(proposer, [other])
    propose(proposer, [other])
    assert propose(proposer, [[*other, 6], [*one, 3]]) == [
        propose(proposer, [[*other, 6]])[0],
        propose(proposer, [[*one, 3]])[0],
    ]


def test_a_text_that_only_begins_alike_is_another_text() -> None:
    proposer = build()
    propose(proposer, [[1, 2, 3, 1, 2, 3, 1, 2]])
    other = [1, 2, 3, 1, 2, 9, 1, 2, 9, 1, 2]
    assert propose(proposer, [other]) == [expected(other, len(other), Span(1, 1, 5, 0.01))]


def test_rows_without_a_sampled_token_get_no_draft_and_are_not_read() -> None:
    proposer = build()
    text = [1, 2, 3, 1, 2]
    drafts = propose(proposer, [text, text], waiting=[0])
    assert drafts[0] == [] and drafts[1]
    assert propose(proposer, [text], waiting=[0]) == [[]]


def test_how_far_is_drafted_depends_on_how_many_share_the_pass() -> None:
    proposer = build(Span(1, 1, 4, 0.0), Span(2, 2, 1, 0.0), Span(3, 4, 0, 1.0))
    text = [1, 2, 3, 4, 5] * 4
    assert [len(draft) for draft in propose(proposer, [text])] == [4]
    assert [len(draft) for draft in propose(proposer, [text] * 2)] == [1, 1]
    assert propose(proposer, [text] * 3) == [[], [], []]
    assert propose(proposer, [text] * 9) == [[]] * 9


def test_a_token_that_is_too_unlikely_is_left_out_with_all_after_it() -> None:
    text = [1, 2, 3, 4, 5] * 4
    lengths = [len(propose(build(Span(1, 1, 15, least)), [text])[0]) for least in (0.0, 0.6, 0.999)]
    assert lengths[0] == 15 and lengths[2] == 0
    assert 0 < lengths[1] < 15


def test_no_draft_reaches_beyond_the_longest_text() -> None:
    text = ([1, 2, 3, 4, 5] * 20)[: MOST_TOKENS - 3]
    assert len(propose(build(Span(1, 1, 15, 0.0)), [text])[0]) == 2
    text = ([1, 2, 3, 4, 5] * 20)[:MOST_TOKENS]
    assert propose(build(Span(1, 1, 15, 0.0)), [text]) == [[]]


def test_readers_of_requests_that_ended_are_let_go() -> None:
    proposer = build()
    for first in range(3 * proposing._SPARE):
        propose(proposer, [[first, 1, 2, 1, 2]])
    assert len(proposer._readers) + len(proposer._spare) <= 1 + proposing._SPARE


def test_the_proposer_needs_nothing_that_vllm_lacks() -> None:
    script = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "typer", "safetensors", "gguf"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import outrider.scale.proposer
"""
    subprocess.run([sys.executable, "-c", script], check=True)
