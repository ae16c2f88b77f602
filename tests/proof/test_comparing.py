"""Two answers to one question: what counts as the same, as a tie, and as a fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from outrider import Decoder, load, verification
from outrider.engine.result import Result
from outrider.proof.base import Check
from outrider.proof.comparing import Comparer, Question
from outrider.sampling.params import SamplingParams
from outrider.targets.base import Rows, ScoredRows
from outrider.types import DraftTree, TokenLogprobs, Verification
from outrider.verification import TargetRows
from support.files import word_tokenizer
from support.proving import shake
from support.scripted import always
from support.tiny import random_ids, shared_model, tiny_model


def loaded(**options: Any) -> Decoder:
    model = options.pop("model", None) or shared_model()
    return load(model, tokenizer=word_tokenizer(), profile=False, **options)


def question(**options: Any) -> Question:
    params = SamplingParams(**{"seed": 1, "max_new_tokens": 8, **options})
    return Question("q", random_ids(5, 1), params)


class Answering:
    """A decoder that gives answers prepared for it, whatever it is asked."""

    def __init__(self, *answers: Result | Exception) -> None:
        self._answers = list(answers)

    def generate_batch(self, prompts: Any, **options: Any) -> list[Result]:
        found = []
        for _ in prompts:
            answer = self._answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            found.append(answer)
        return found


def judged(comparer: Comparer, asked: Question, plain: Result, *found: Result | Exception) -> Check:
    questions, expected = [asked] * len(found), [plain] * len(found)
    decoder: Any = Answering(*found)
    return comparer.compare("identity", "x", decoder, questions, expected, together=False)


def with_tokens(result: Result, *ids: int) -> Result:
    kept = result.tokens[: len(ids)]
    return replace(result, tokens=tuple(replace(t, id=i) for t, i in zip(kept, ids, strict=True)))


def test_equal_answers_pass_and_are_counted() -> None:
    comparer = Comparer(loaded())
    (plain,) = comparer.plainly([question()])
    check = judged(comparer, question(), plain, plain, plain)
    assert check.passed
    assert (check.counts["answers"], check.counts["tokens"]) == (2, 16)


def test_log_probabilities_that_are_missing_are_a_fault() -> None:
    comparer = Comparer(loaded())
    asked = question(logprobs=2)
    (plain,) = comparer.plainly([asked])
    assert judged(comparer, asked, plain, plain).passed
    bare = replace(plain, tokens=tuple(replace(token, logprobs=None) for token in plain.tokens))
    check = judged(comparer, asked, plain, bare)
    assert check.faults == (
        f"x, q: log-probabilities of 0 tokens, plain decoding has {len(plain.token_ids)}",
    )


def test_a_token_that_differs_is_a_fork_with_its_margin_and_no_tie() -> None:
    comparer = Comparer(loaded())
    (plain,) = comparer.plainly([question()])
    ids = list(plain.token_ids)
    ids[3] = (ids[3] + 1) % 64
    check = judged(comparer, question(), plain, with_tokens(plain, *ids))
    (fork,) = check.forks
    assert not check.passed and not check.faults
    assert (fork.position, fork.token, fork.plain_token) == (3, ids[3], plain.token_ids[3])
    assert fork.margin is not None and fork.noise is not None
    assert fork.margin > 1e-3 > 1e-9 > fork.noise
    assert check.counts["tokens"] == 4
    assert "x, q: token 3 is" in str(fork) and "no tie: margin" in str(fork)


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"temperature": 0.9, "top_p": 0.7}])
def test_forks_that_rounding_makes_are_ties_by_their_margins(options: dict[str, Any]) -> None:
    """Real forks: logits move with the rows of a pass, and nothing else is wrong."""
    decoder = loaded(model=tiny_model(scale=2.0))
    comparer = Comparer(decoder)
    asked = [question(max_new_tokens=24, seed=seed, **options) for seed in range(4)]
    plain = comparer.plainly(asked)
    shake(decoder.engine.target, 0.02)
    drafting = decoder.using([always(3)], max_draft=7)
    check = comparer.compare("identity", "x", drafting, asked, plain, together=False)
    assert check.forks
    assert check.passed, [str(fork) for fork in check.forks]


@pytest.mark.parametrize("count", [7, 0])
def test_an_answer_that_ends_early_is_a_fault(count: int) -> None:
    """SERVE-7: equal so far is not equal."""
    comparer = Comparer(loaded())
    (plain,) = comparer.plainly([question()])
    check = judged(comparer, question(), plain, with_tokens(plain, *plain.token_ids[:count]))
    assert check.faults == (f"x, q: {count} tokens, plain decoding has 8",)


@pytest.mark.parametrize("change", [{"text": "other"}, {"finish_reason": "stop"}])
def test_another_text_or_end_of_the_same_tokens_is_a_fault(change: dict[str, Any]) -> None:
    comparer = Comparer(loaded())
    (plain,) = comparer.plainly([question()])
    check = judged(comparer, question(), plain, replace(plain, **change))
    assert check.faults == ("x, q: the same tokens, but another text or end",)


def test_what_decoding_raises_is_a_fault() -> None:
    comparer = Comparer(loaded())
    (plain,) = comparer.plainly([question()])
    check = judged(comparer, question(), plain, ZeroDivisionError("oh"))
    assert check.faults == ("x: ZeroDivisionError: oh",)


def test_a_drafter_that_was_dropped_is_named_and_is_no_fault() -> None:
    comparer = Comparer(loaded())
    (plain,) = comparer.plainly([question()])
    stats = replace(plain.stats, drafter_error="ValueError: no")
    check = judged(comparer, question(), plain, replace(plain, stats=stats))
    assert check.passed
    assert check.dropped == ("x: ValueError: no",)


def test_every_choice_of_n_is_compared() -> None:
    comparer = Comparer(loaded())
    asked = question(n=2, temperature=1.0)
    (plain,) = comparer.plainly([asked])
    assert judged(comparer, asked, plain, plain).counts["answers"] == 2
    second = plain.choices[1]
    ids = [(second.token_ids[0] + 1) % 64, *second.token_ids[1:]]
    found = plain.with_choices([plain.choices[0], with_tokens(second, *ids)])
    (fork,) = judged(comparer, asked, plain, found).forks
    assert fork.answer == "x, q, choice 1"
    assert fork.margin is not None


def moved(result: Result, by: float) -> Result:
    """Return an answer whose third log-probability is another."""
    tokens = list(result.tokens)
    record = tokens[2].logprobs
    assert record is not None
    tokens[2] = replace(tokens[2], logprobs=TokenLogprobs(record.chosen + by, record.top))
    return replace(result, tokens=tuple(tokens))


def test_log_probabilities_may_differ_by_rounding_and_no_more() -> None:
    comparer = Comparer(loaded(model=tiny_model(dtype=torch.float32)))
    asked = question(logprobs=3)
    (plain,) = comparer.plainly([asked])
    near = judged(comparer, asked, plain, moved(plain, 1e-9))
    assert near.passed and "log-probabilities at token 2 differ by" in near.notes[0]
    assert not judged(comparer, asked, plain, moved(plain, 1e-2)).passed


def test_invariant_numerics_excuse_nothing() -> None:
    comparer = Comparer(loaded(numerics="invariant"))
    (plain,) = comparer.plainly([question()])
    assert plain.logprobs is not None and len(plain.logprobs[0].top) == 5
    assert judged(comparer, question(), plain, plain).passed
    assert not judged(comparer, question(), plain, moved(plain, 1e-12)).passed
    ids = [*plain.token_ids[:-1], (plain.token_ids[-1] + 1) % 64]
    (fork,) = judged(comparer, question(), plain, with_tokens(plain, *ids)).forks
    assert fork.margin is None and not fork.is_tie


def test_a_batch_is_decoded_at_once_and_singles_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder = loaded()
    comparer = Comparer(decoder)
    asked = [question(), question(temperature=1.0), question(seed=5)]
    plain = comparer.plainly(asked)
    sizes: list[int] = []
    target: Any = decoder.engine.target
    score = target.score

    def counted(rows: list[Rows], layers: Any = ()) -> ScoredRows:
        sizes.append(len(rows))
        found: ScoredRows = score(rows, layers)
        return found

    monkeypatch.setattr(target, "score", counted)
    for together in (False, True):
        sizes.clear()
        check = comparer.compare("identity", "x", decoder, asked, plain, together=together)
        assert check.passed
        assert max(sizes) == (3 if together else 1)
        assert check.counts["batched"] == (3 if together else 0)


def test_an_engine_that_skips_a_row_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way: an engine's fault becomes a fork that rounding does not explain."""
    decoder = loaded(drafter="ngram", max_draft=4)
    comparer = Comparer(decoder)
    asked = [question(max_new_tokens=24, seed=seed, temperature=0.5) for seed in range(3)]
    plain = comparer.plainly(asked)
    real = verification.verify_match

    def later(rows: TargetRows, tree: DraftTree) -> Verification:
        found = real(rows, tree)
        return replace(found, next_token=(found.next_token + len(tree)) % 64)

    monkeypatch.setattr(verification, "verify_match", later)
    check = comparer.compare("identity", "x", decoder, asked, plain, together=False)
    assert not check.passed
    assert not any(fork.is_tie for fork in check.forks)
