"""Where texts say again what they said, and texts that do little else."""

from __future__ import annotations

from random import Random

from outrider.training.copying.recurrence import NOWHERE, continuations, patchwork


def test_a_text_goes_on_behind_the_longest_piece_that_was_written_before() -> None:
    #      0  1  2  3  4  5  6  7  8  9 10
    ids = [7, 1, 2, 3, 8, 1, 2, 9, 7, 1, 2]
    found = continuations(ids)
    assert found[6] == 3  # 1 2 was last written at 1, 2
    assert found[10] == 3  # 7 1 2 is longer than the later 1 2
    assert found[9] == 2
    assert [place for place, source in enumerate(found) if source != NOWHERE] == [6, 9, 10]


def test_of_pieces_as_long_the_latest_goes_on() -> None:
    assert continuations([1, 2, 5, 1, 2, 6, 1, 2])[-1] == 5


def test_a_token_alone_does_not_recur_and_what_recurs_lies_before() -> None:
    assert continuations([4, 5, 4, 6, 4, 7, 4]) == [NOWHERE] * 7
    ids = [Random(1).randrange(6) for _ in range(300)]
    for place, source in enumerate(continuations(ids)):
        if source != NOWHERE:
            assert 2 <= source <= place
            assert ids[source - 2 : source] == ids[place - 1 : place + 1]


def test_a_good_part_of_a_made_up_text_was_written_before() -> None:
    words = range(1000, 3000)
    text = patchwork(words, 4000, Random(3))
    assert len(text) == 4000
    assert set(text) <= set(words)
    sources = continuations(text)
    copied = sum(
        source != NOWHERE and text[source] == following
        for source, following in zip(sources, text[1:], strict=False)
    )
    assert 0.2 < copied / len(text) < 0.6
    assert text == patchwork(words, 4000, Random(3))
