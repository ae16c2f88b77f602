"""Sampling options: each is tried with values that matter, and a skipped one is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from torch import Tensor

from outrider import load
from outrider.proof.comparing import Comparer
from outrider.proof.options import OPTIONS, OptionTrials
from outrider.proof.variants import option_variants
from outrider.sampling.pipeline import LogitsPipeline
from support.proving import PROMPTS, do, loaded, total
from support.tiny import shared_model


def trials(decoder: Any, *, tokens: int = 1) -> OptionTrials:
    return OptionTrials(
        Comparer(decoder),
        PROMPTS,
        option_variants(decoder),
        tokens=tokens,
        seed=0,
        tokenizer=decoder.tokenizer,
    )


def test_each_option_is_on_once_and_changes_the_answer() -> None:
    checks = do(trials(loaded()).work())
    tried = [check for check in checks.values() if check.counts]
    assert {check.name for check in checks.values()} == set(OPTIONS)
    assert len(tried) >= len(OPTIONS) - 1  # word tokenizers know no grammars
    for check in tried:
        assert check.passed, check.faults
        assert check.counts["accepted"] > 0
        assert check.counts["changed"] > 0 or check.name == "logprobs", check.name


def test_the_options_are_all_those_that_act_on_what_is_said() -> None:
    assert set(OPTIONS) >= {
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "bad_words",
        "min_new_tokens",
        "stop",
        "stop_token_ids",
        "logprobs",
        "n",
    }


def test_an_option_that_cannot_be_tried_is_named() -> None:
    """Without a tokenizer there is no text to stop at, and none for a grammar."""
    decoder = load(shared_model(), profile=False)
    found = do(trials(decoder).work(), only=lambda key: key in ("options/stop", "options/grammar"))
    assert [check.name for check in found.values()] == ["stop", "grammar"]
    assert found["options/stop"].notes == ("stop not tried: the model has no tokenizer",)
    assert all(check.passed and not check.counts for check in found.values())


def test_more_tokens_take_more_cycles() -> None:
    found = trials(loaded("none"), tokens=450)
    found.length = 12
    checks = list(do(found.work()).values())
    assert total(checks, "tokens") >= 450
    assert len(checks) >= 2 * (len(OPTIONS) - 1)


@pytest.mark.parametrize(
    "option",
    ["temperature", "top_k", "repetition_penalty", "frequency_penalty", "logit_bias", "bad_words"],
)
def test_an_option_skipped_at_drafted_rows_is_found(
    monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """DIST-15, PROC-2: options acted on the first row of a pass alone."""
    real = LogitsPipeline.scores

    def first_row_only(
        self: LogitsPipeline, logits: Tensor, paths: Sequence[tuple[int, ...]]
    ) -> Tensor:
        found = real(self, logits, paths)
        for row, path in enumerate(paths):
            if path:
                found[row] = logits[row]
        return found

    decoder = loaded("none")
    monkeypatch.setattr(LogitsPipeline, "scores", first_row_only)
    found = trials(decoder)
    found.length = 24
    checks = do(found.work(), only=lambda key: key == f"options/0/{option}")
    (check,) = checks.values()
    assert not check.passed
