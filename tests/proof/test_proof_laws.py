"""Exact laws of short texts, and whether counts fit them."""

from __future__ import annotations

import builtins
import math
from collections import Counter
from typing import Any

import pytest
import torch

from outrider.errors import OptionError
from outrider.proof.laws import (
    ChiSquare,
    Text,
    binomial_p_value,
    chi_square,
    require_statistics,
    text_law,
)

P = torch.tensor([0.5, 0.3, 0.2, 0.0])
LAW: dict[Text, float] = {(0,): 0.5, (1,): 0.3, (2,): 0.2}


def drawn(law: dict[Text, float], draws: int, seed: int = 0) -> Counter[Text]:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.tensor(list(law.values()), dtype=torch.float64)
    picks = torch.multinomial(weights, draws, replacement=True, generator=generator).tolist()
    texts = list(law)
    return Counter(texts[pick] for pick in picks)


def test_the_law_of_texts_is_the_product_along_them() -> None:
    law = text_law(lambda _: P, 2, lambda token: token == 1)
    assert law == pytest.approx(
        {
            (1,): 0.3,
            (0, 0): 0.25,
            (0, 1): 0.15,
            (0, 2): 0.1,
            (2, 0): 0.1,
            (2, 1): 0.06,
            (2, 2): 0.04,
        }
    )
    assert sum(law.values()) == pytest.approx(1)


def test_each_text_has_the_law_of_its_own_context() -> None:
    turned = P.flip(0)
    law = text_law(lambda text: turned if text == (0,) else P, 2, lambda _: False)
    assert law[0, 3] == pytest.approx(0.25)
    assert (0, 0) not in law


def test_chi_square_is_its_formula() -> None:
    found = chi_square([({(0,): 60, (1,): 25, (2,): 15}, LAW)])
    assert found.value == pytest.approx(100 / 50 + 25 / 30 + 25 / 20)
    assert found.freedom == 2
    assert found.p_value == pytest.approx(math.exp(-found.value / 2))  # exact at 2 degrees


def test_samples_add_up() -> None:
    counts: dict[Text, int] = {(0,): 60, (1,): 25, (2,): 15}
    one = (counts, LAW)
    single, both = chi_square([one]), chi_square([one, one])
    assert (both.value, both.freedom) == (2 * single.value, 2 * single.freedom)


def test_counts_from_the_law_fit_and_others_do_not() -> None:
    other: dict[Text, float] = {(0,): 0.35, (1,): 0.39, (2,): 0.26}
    assert chi_square([(drawn(LAW, 1000), LAW)]).p_value > 1e-3
    assert chi_square([(drawn(other, 1000), LAW)]).p_value < 1e-9


def test_a_text_that_cannot_be_is_found_at_once() -> None:
    assert chi_square([({(0,): 50, (1,): 30, (2,): 19, (3,): 1}, LAW)]).p_value == 0


def test_rare_texts_are_counted_together() -> None:
    law: dict[Text, float] = {(0,): 0.9, **{(token,): 0.1 / 50 for token in range(1, 51)}}
    assert chi_square([(drawn(law, 200), law)]).freedom == 1
    few: dict[Text, float] = {(0,): 0.6, (1,): 0.395, (2,): 0.005}
    assert chi_square([(drawn(few, 200), few)]).freedom == 1


def test_rare_texts_go_with_those_that_begin_like_them() -> None:
    """Of 64 texts, each expected 3 times in 200, the first tokens make four cells of their own."""
    quarter = torch.full((4,), 0.25)
    law = text_law(lambda _: quarter, 3, lambda _: False)
    found = chi_square([(drawn(law, 200), law)])
    assert found.freedom == 15
    assert chi_square([(drawn(law, 100), law)]).freedom == 3
    counts = {text: 4 if text[0] < 2 else 2 for text in law}
    assert chi_square([(counts, law)]).value == pytest.approx(
        16 * 4 * (1**2 / 3) * 0 + 21.333, 0.01
    )


def test_a_certain_text_is_no_evidence() -> None:
    assert chi_square([({(0,): 100}, {(0,): 1.0})]) == ChiSquare(0.0, 0, 1.0)


def test_a_share_that_is_off_is_found() -> None:
    assert binomial_p_value(700, 1000, 0.7) > 0.5
    assert binomial_p_value(290, 1000, 0.7) < 1e-9
    assert binomial_p_value(1000, 1000, 1.0 + 1e-9) == 1


def test_a_missing_library_is_named_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(OptionError, match=r"pip install 'outrider\[prove\]'"):
        require_statistics()
