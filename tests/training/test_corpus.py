from __future__ import annotations

from random import Random

import pytest
import torch

from outrider.errors import OptionError
from outrider.training.base import Batch, Sample
from outrider.training.corpus import Corpus, cut


def random_samples(count: int, seed: int = 0) -> list[Sample]:
    """Return samples of distinct ids: token 7 of sample 12 is 12007."""
    random = Random(seed)
    samples = []
    for index in range(count):
        size = random.randint(6, 60)
        ids = tuple(1000 * (index + 1) + token for token in range(size))
        samples.append(Sample(ids, random.randint(0, size - 5)))
    return samples


def corpus(samples: list[Sample] | None = None, **options: object) -> Corpus:
    chosen = {"max_tokens": 64, "batch_tokens": 256, "seed": 3, "held_out": 0.2} | options
    return Corpus(random_samples(120) if samples is None else samples, **chosen)  # type: ignore[arg-type]


def texts(batches: list[Batch]) -> list[list[tuple[int, ...]]]:
    return [
        [tuple(ids[real].tolist()) for ids, real in zip(batch.ids, batch.real, strict=True)]
        for batch in batches
    ]


def test_an_epoch_gives_each_learnt_sample_once() -> None:
    found = corpus()
    for epoch in range(3):
        given = [text for group in texts(list(found.batches(epoch))) for text in group]
        assert sorted(given) == sorted(sample.ids for sample in found.learnt)
        assert sum(batch.num_tokens for batch in found.batches(epoch)) == found.num_tokens


def test_a_batch_keeps_to_its_bound_and_to_similar_lengths() -> None:
    batches = list(corpus().batches(0))
    assert all(batch.ids.numel() <= 256 for batch in batches)
    padding = 1 - sum(int(batch.real.sum()) for batch in batches) / sum(
        batch.ids.numel() for batch in batches
    )
    assert padding < 0.1


def test_batches_follow_from_the_set_of_samples_alone() -> None:
    samples = random_samples(120)
    shuffled = samples[::-1]
    one, other = corpus(samples), corpus(shuffled)
    assert one.digest == other.digest
    assert texts(list(one.batches(5))) == texts(list(other.batches(5)))
    assert texts(list(one.held_out_batches())) == texts(list(other.held_out_batches()))


@pytest.mark.parametrize("epoch", [0, 4])
def test_an_epoch_can_be_taken_up_at_any_batch(epoch: int) -> None:
    found = corpus()
    whole = texts(list(found.batches(epoch)))
    assert found.num_batches(epoch) == len(whole) > 5
    for start in range(len(whole) + 1):
        assert texts(list(found.batches(epoch, start))) == whole[start:]
    with pytest.raises(OptionError, match=f"start is {len(whole) + 1}: epoch {epoch} has"):
        next(found.batches(epoch, len(whole) + 1))


def test_epochs_and_seeds_have_an_order_of_their_own() -> None:
    orders = [
        texts(list(corpus(seed=seed).batches(epoch))) for seed, epoch in ((3, 0), (3, 1), (4, 0))
    ]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_more_samples_than_a_pool_are_grouped_anew_each_epoch() -> None:
    found = corpus(random_samples(2500))
    one, other = ({frozenset(g) for g in texts(list(found.batches(epoch)))} for epoch in (0, 1))
    assert len(one & other) < len(one) / 2


def test_a_prompt_is_learnt_or_held_out_and_stays_there() -> None:
    samples = random_samples(120)
    prompt = (1, 2, 3)
    again = [Sample((*prompt, *range(n, n + 9)), 3) for n in range(20)]
    small, large = corpus([*samples[:60], *again]), corpus([*samples, *again])
    assert not set(small.learnt) & set(large.held_out)
    assert not set(small.held_out) & set(large.learnt)
    assert len({sample in large.held_out for sample in again}) == 1
    assert 0.1 < len(corpus(samples).held_out) / 120 < 0.3


def test_a_seed_changes_the_order_and_not_what_is_held_out() -> None:
    assert corpus(seed=1).held_out == corpus(seed=2).held_out


def test_something_is_held_out_unless_nothing_is_wanted() -> None:
    samples = random_samples(3)
    assert len(corpus(samples, held_out=1e-9).held_out) == 1
    assert corpus(samples, held_out=0).held_out == ()
    assert list(corpus(samples, held_out=0).held_out_batches()) == []


def test_what_is_too_long_keeps_the_end_of_its_prompt_and_the_start_of_its_answer() -> None:
    ids = tuple(range(100))
    assert cut(Sample(ids, 90), 100) == Sample(ids, 90)
    assert cut(Sample(ids, 20), 64) == Sample(ids[:64], 20)
    assert cut(Sample(ids, 0), 64) == Sample(ids[:64], 0)
    assert cut(Sample(ids, 50), 60) == Sample(ids[20:80], 30)
    assert cut(Sample(ids, 90), 60) == Sample(ids[40:], 50)
    assert cut(Sample(ids, 100), 60).prompt_tokens == 60


def test_samples_that_teach_too_little_are_counted_and_dropped() -> None:
    few = [Sample(tuple(range(10)), 7), Sample((1, 2, 3))]
    long = Sample(tuple(range(100)), 5)
    enough = Sample(tuple(range(10)), 6)
    found = corpus([*few, long, enough], held_out=0)
    assert (found.num_dropped, found.num_cut) == (2, 1)
    assert set(found.learnt) == {enough, cut(long, 64)}


def test_the_digest_tells_corpora_apart() -> None:
    samples = random_samples(30)
    moved = [*samples[:-1], Sample(samples[-1].ids, samples[-1].prompt_tokens + 1)]
    every = [
        corpus(samples),
        corpus(samples[1:]),
        corpus(moved),
        corpus(samples, seed=4),
        corpus(samples, batch_tokens=300),
        corpus(samples, max_tokens=32),
        corpus(samples, held_out=0.5),
    ]
    assert len({one.digest for one in every}) == len(every)


def test_batches_hold_what_counts_and_what_is_real() -> None:
    (batch,) = corpus([Sample((5, 6, 7, 8, 9), 1), Sample((4, 3, 2, 1))], held_out=0).batches(0)
    rows = sorted(zip(batch.ids.tolist(), batch.counts.sum(1).tolist(), strict=True))
    assert rows == [([4, 3, 2, 1, 0], 4), ([5, 6, 7, 8, 9], 4)]
    assert torch.equal(batch.real, batch.ids != 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 7}, "max_tokens is 7, must be at least 8"),
        ({"batch_tokens": 63}, r"batch_tokens is 63, must be at least max_tokens \(64\)"),
        ({"held_out": 1.0}, "held_out is 1.0, must be from 0 to below 1"),
        ({"samples": []}, "the corpus is empty: of 0 samples"),
        ({"samples": [Sample((1, 2))]}, "of 1 samples 1 have fewer than 4 tokens to learn"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        corpus(**options)  # type: ignore[arg-type]
