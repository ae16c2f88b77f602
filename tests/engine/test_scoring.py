"""Prompts that are scored: each token's log-probability is that of a forward pass over the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from scheduling import Log, run_all, telling_target

from outrider.engine import scoring
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.engine.scoring import PromptScores
from outrider.errors import OptionError
from outrider.proof.memory import RememberingTarget
from outrider.targets.base import Rows
from outrider.targets.graphed import GraphedPasses
from outrider.targets.transformers import TransformersTarget
from outrider.types import DraftTree, TokenLogprobs
from support.runs import assert_same, decode, make_request, shared_target
from support.scripted import random_trees
from support.tiny import VOCAB, random_ids, shared_model, tiny_model

TOP = 3


def scored(prompt: Sequence[int], **options: Any) -> Request:
    return replace(make_request(prompt, **options), scores=PromptScores(TOP))


def records(request: Request) -> tuple[TokenLogprobs, ...]:
    assert request.scores is not None
    return request.scores.records


def by_the_model(prompt: Sequence[int], model: Any = None) -> list[TokenLogprobs]:
    model = shared_model() if model is None else model
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([prompt])).logits[0]
    rows = logits.double().log_softmax(-1)
    found = []
    for row, token in zip(rows[:-1], prompt[1:], strict=True):
        values, ids = row.topk(TOP)
        top = tuple(zip(ids.tolist(), values.tolist(), strict=True))
        found.append(TokenLogprobs(row[token].item(), top))
    return found


def assert_close(found: Sequence[TokenLogprobs], expected: Sequence[TokenLogprobs]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert [token for token, _ in one.top] == [token for token, _ in other.top]
        assert one.chosen == pytest.approx(other.chosen)
        assert [v for _, v in one.top] == pytest.approx([v for _, v in other.top])


@pytest.mark.parametrize("length", [1, 2, 17, 90])
@pytest.mark.parametrize("prefill_rows", [None, 16, 24])
def test_a_prompts_tokens_have_the_models_own_logprobs(
    length: int, prefill_rows: int | None
) -> None:
    request = scored(random_ids(length, 4), max_new_tokens=3)
    scheduler = Engine(shared_target()).scheduler(prefill_rows=prefill_rows)
    (result,) = run_all(scheduler, [request])
    assert_close(records(request), by_the_model(request.prompt_ids))
    assert_same(result, decode(shared_target(), request))


def test_a_scored_prompt_does_not_change_what_anyone_says() -> None:
    """Cached prompts, drafts, and others in the same rounds; half of all prompts are scored."""
    engine = Engine(shared_target(), random_trees(VOCAB), max_draft=4, max_batch=3)
    scheduler = engine.scheduler(prefill_rows=24, max_prefixes=2)
    stem = random_ids(30, 9)
    prompts = [(*stem, *random_ids(5 + 7 * place, place)) for place in range(8)]
    requests = [
        (scored if place % 2 else make_request)(prompt, max_new_tokens=6)
        for place, prompt in enumerate(prompts)
    ]
    for request, result in zip(requests, run_all(scheduler, requests), strict=True):
        plain = replace(request, scores=None)
        assert_same(result, decode(shared_target(), plain))
        if request.scores is not None:
            assert_close(records(request), by_the_model(request.prompt_ids))
            assert result.stats.reused_tokens == 0
    assert scheduler.audit() == []
    scheduler.close()


def test_a_scored_prompt_is_read_in_pieces_even_if_nothing_else_asks_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("outrider.engine.state.MOST_SCORED_ROWS", 20)
    target = telling_target()
    request = scored(random_ids(70, 1), max_new_tokens=2)
    run_all(Engine(target).scheduler(), [request])
    assert max(len(rows.pending) for scored in target.passes for rows in scored) == 20
    assert len(records(request)) == 69


def test_a_request_that_runs_again_is_scored_anew() -> None:
    request = scored(random_ids(9, 1), max_new_tokens=1)
    scheduler = Engine(telling_target()).scheduler(max_prefixes=1)
    run_all(scheduler, [request])
    first = records(request)
    run_all(scheduler, [request])
    assert records(request) == first


def test_scores_that_cannot_be_had_are_refused() -> None:
    target = RememberingTarget(telling_target())
    engine = Engine(target)
    with pytest.raises(OptionError, match="RememberingTarget"):
        engine.check_request(scored((1, 2)))
    with pytest.raises(OptionError, match="RememberingTarget"):
        engine.scheduler().submit(scored((1, 2)))


def test_an_error_while_a_prompt_is_scored_ends_that_request_alone() -> None:
    class Broken(PromptScores):
        def add(self, logits: Any, tokens: Any) -> None:
            raise ValueError("no memory")

    prompts = random_ids(40, 1), random_ids(7, 2), random_ids(30, 3)
    requests = [make_request(prompt, max_new_tokens=4) for prompt in prompts]
    for place in (0, 1):
        requests[place] = replace(requests[place], scores=Broken())
    scheduler, log = Engine(telling_target()).scheduler(prefill_rows=16), Log()
    tickets = [scheduler.submit(request) for request in requests]
    log.finish(scheduler)
    assert set(log.errors) == set(tickets[:2]) and set(log.results) == set(tickets[2:])
    assert scheduler.audit() == []


@pytest.mark.parametrize("kind", ["eager", "invariant", "graphed"])
@pytest.mark.parametrize("draft", [DraftTree(), DraftTree((3, 5, 3), (-1, -1, 0))])
def test_rows_that_are_pending_have_the_logits_they_have_as_a_draft(
    kind: str, draft: DraftTree
) -> None:
    target = TransformersTarget(
        tiny_model(), numerics="invariant" if kind == "invariant" else "fast"
    )
    if kind == "graphed":
        target._passes = GraphedPasses(target.model, target._cache, target.device)
    sequences = [target.open(128) for _ in range(3)]
    prompts = [random_ids(length, length) for length in (5, 70, 90)]
    asked = [
        Rows(sequence, tuple(prompt), draft, scores_pending=sequence != sequences[0])
        for sequence, prompt in zip(sequences, prompts, strict=True)
    ]
    found = [*target.score(asked[:2]).logits, *target.score(asked[2:]).logits]
    assert [len(one) for one in found] == [1 + len(draft), 70 + len(draft), 90 + len(draft)]
    for sequence, prompt, logits in zip(sequences[1:], prompts[1:], found[1:], strict=True):
        chain = Rows(sequence, (prompt[0],), DraftTree.chain(prompt[1:]))
        (expected,) = target.score([chain]).logits
        torch.testing.assert_close(logits[: len(prompt)], expected)


def test_blocks_of_rows_are_scored_like_all_at_once() -> None:
    rows = torch.randn(2 * scoring._BLOCK + 5, VOCAB, dtype=torch.float64)
    tokens = random_ids(len(rows), 0)
    scores = PromptScores(TOP)
    scores.add(rows, tokens)
    expected = rows.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0]
    assert [one.chosen for one in scores.records] == pytest.approx(expected.tolist())


def test_under_invariant_numerics_a_scored_prompt_leaves_the_same_bits() -> None:
    model = tiny_model(dtype=torch.float32)
    target = TransformersTarget(model, numerics="invariant")
    prompt, draft = tuple(random_ids(90, 4)), DraftTree.chain((3, 5))
    found = []
    for scores_pending in (False, True):
        sequence = target.open(128)
        rows = Rows(sequence, prompt, draft, scores_pending=scores_pending)
        found.append(target.score([rows]).logits[0][-3:])
        target.commit(sequence, (0,))
        found.append(target.score([Rows(sequence, (7,), draft)]).logits[0])
    assert torch.equal(found[0], found[2]) and torch.equal(found[1], found[3])
