"""The options of a request: checked when made, immutable, and named in every complaint."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from outrider.errors import OptionError
from outrider.sampling.params import MAX_SEED, SamplingParams


def test_the_default_is_greedy_and_neutral() -> None:
    params = SamplingParams()
    assert params.is_greedy
    assert params.repetition_penalty == 1
    assert not params.logit_bias
    assert not params.logits_processors


@pytest.mark.parametrize(
    "option",
    [
        {"temperature": -0.1},
        {"temperature": 1e-9},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"temperature": "1"},
        {"temperature": True},
        {"temperature": None},
        {"top_k": -1},
        {"top_k": 1.5},
        {"top_k": True},
        {"top_p": 1.01},
        {"top_p": math.nan},
        {"min_p": -0.01},
        {"repetition_penalty": 0},
        {"repetition_penalty": math.inf},
        {"presence_penalty": 2.5},
        {"frequency_penalty": -2.5},
        {"logit_bias": {-1: 1.0}},
        {"logit_bias": {1: math.nan}},
        {"logit_bias": {1: math.inf}},
        {"logit_bias": {"1": 1.0}},
        {"logit_bias": [1, 2]},
        {"bad_words": [[]]},
        {"bad_words": [1, 2]},
        {"bad_words": "word"},
        {"bad_words": [[1, -2]]},
        {"min_new_tokens": -1},
        {"min_new_tokens": 257},
        {"max_new_tokens": 0},
        {"stop": ""},
        {"stop": ["a", ""]},
        {"stop": [1]},
        {"stop": 1},
        {"stop_token_ids": [-1]},
        {"stop_token_ids": 3},
        {"ignore_eos": 1},
        {"seed": -1},
        {"seed": MAX_SEED + 1},
        {"seed": 1.0},
        {"n": 0},
        {"logprobs": 21},
        {"logprobs": -1},
        {"logits_processors": [3]},
        {"logits_processors": abs},
        {"stopping_criteria": "stop"},
    ],
    ids=str,
)
def test_a_value_out_of_range_is_an_error_naming_option_value_and_range(
    option: dict[str, Any],
) -> None:
    (name,) = option
    with pytest.raises(OptionError, match=f"^{name} is .*: expected ") as caught:
        SamplingParams().with_options(**option)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_an_unknown_option_is_an_error_naming_the_nearest_known_one() -> None:
    with pytest.raises(OptionError, match="unknown option temprature; did you mean temperature"):
        SamplingParams().with_options(temprature=1.0)
    with pytest.raises(OptionError, match="unknown option zzz; known: temperature"):
        SamplingParams().with_options(zzz=1)


def test_values_are_normalised_once_and_for_all() -> None:
    words = [[1, 2], [3]]
    params = SamplingParams().with_options(
        stop="end", bad_words=words, stop_token_ids=[np.int64(7)], logit_bias={np.int32(4): 1}
    )
    words[0].append(9)
    assert params.stop == ("end",)
    assert params.bad_words == ((1, 2), (3,))
    assert params.stop_token_ids == (7,)
    assert params.logit_bias == {4: 1.0}
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.seed = 1  # type: ignore[misc]


def test_params_do_not_alias_the_mapping_they_were_given() -> None:
    bias = {4: 1.0}
    params = SamplingParams(logit_bias=bias)
    bias[4] = 9.0
    assert params.logit_bias == {4: 1.0}


def test_with_options_leaves_the_original_alone() -> None:
    params = SamplingParams(seed=3)
    assert params.with_options(temperature=0.5) == SamplingParams(seed=3, temperature=0.5)
    assert params.is_greedy


def test_equal_params_hash_alike() -> None:
    assert len({SamplingParams(logit_bias={1: 2}), SamplingParams(logit_bias={1: 2})}) == 1


def test_choice_i_is_the_request_with_seed_plus_i() -> None:
    """PROC-12."""
    params = SamplingParams(n=3, seed=5, temperature=1)
    alone = SamplingParams(temperature=1)
    assert [params.for_choice(i) for i in range(3)] == [
        alone.with_options(seed=seed) for seed in (5, 6, 7)
    ]
    assert SamplingParams(n=2).for_choice(1).seed is None
    assert SamplingParams(n=2, seed=MAX_SEED).for_choice(1).seed == 0
    with pytest.raises(OptionError, match="choice is 3"):
        params.for_choice(3)
