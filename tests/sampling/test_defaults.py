"""Defaults: what a model's generation config asks for, done as Transformers does it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import GenerationConfig
from transformers.generation import logits_process as hf

from outrider.errors import OptionError
from outrider.sampling.defaults import eos_token_ids, params_from_generation_config
from outrider.sampling.params import SamplingParams
from outrider.sampling.pipeline import LogitsPipeline

V = 30
PROMPT = (4, 5, 6, 4, 5)
PATHS = [(), (6,), (6, 4), (6, 4, 5)]
LOGITS = torch.randn(4, V, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def config(**options: Any) -> Any:
    build: Any = GenerationConfig  # which Transformers leaves untyped
    return build(**options)


def params(**options: Any) -> SamplingParams:
    return params_from_generation_config(config(**options))


def scores(**options: Any) -> torch.Tensor:
    ending = eos_token_ids(config(**options), None)
    pipeline = LogitsPipeline(params(**options), PROMPT, ending, V, LOGITS.device)
    return pipeline.scores(LOGITS, PATHS)


def by_transformers(*processors: Any) -> torch.Tensor:
    rows = []
    for row, path in enumerate(PATHS):
        result = LOGITS[row : row + 1]
        for processor in processors:
            result = processor(torch.tensor([[*PROMPT, *path]]), result)
        rows.append(result)
    return torch.cat(rows)


def test_without_a_wish_decoding_is_greedy() -> None:
    assert params_from_generation_config(None) == SamplingParams()
    assert params() == SamplingParams()
    assert params(do_sample=False) == SamplingParams()


def test_sampling_defaults_are_those_of_transformers() -> None:
    assert params(do_sample=True) == SamplingParams(temperature=1.0, top_k=50)
    wished = params(do_sample=True, temperature=0.6, top_k=20, top_p=0.95, min_p=0.1)
    assert wished == SamplingParams(temperature=0.6, top_k=20, top_p=0.95, min_p=0.1)
    assert params(do_sample=True, top_k=0).top_k == 0


def test_sampling_flags_mean_nothing_to_greedy() -> None:
    flags = SimpleNamespace(do_sample=False, temperature=0.6, top_p=0.9, top_k=5)
    assert params_from_generation_config(flags) == SamplingParams()


def test_what_we_have_ourselves_becomes_an_option() -> None:
    """PROC-8: suppressed tokens are banned at every row."""
    found = params(
        repetition_penalty=1.1,
        min_new_tokens=3,
        max_new_tokens=9,
        stop_strings=["end"],
        suppress_tokens=[7, 8],
        sequence_bias=[[[9], 1.5]],
        bad_words_ids=[[1, 2], [3]],
        eos_token_id=3,
    )
    assert found == SamplingParams(
        repetition_penalty=1.1,
        min_new_tokens=3,
        max_new_tokens=9,
        stop=("end",),
        logit_bias={7: -math.inf, 8: -math.inf, 9: 1.5},
        bad_words=((1, 2),),
    )


def test_a_minimum_above_our_own_limit_raises_the_limit() -> None:
    assert params(min_new_tokens=1000).max_new_tokens == 1000
    with pytest.raises(OptionError, match="min_new_tokens is 5"):
        params(min_new_tokens=5, max_new_tokens=4)


@pytest.mark.parametrize(
    ("options", "processors"),
    [
        ({"no_repeat_ngram_size": 2}, [hf.NoRepeatNGramLogitsProcessor(2)]),
        (
            {"sequence_bias": [[[6, 4], 3.0], [[5], -1.0]]},
            [hf.SequenceBiasLogitsProcessor([[[6, 4], 3.0], [[5], -1.0]])],
        ),
        ({"min_length": 7, "eos_token_id": [2, 3]}, [hf.MinLengthLogitsProcessor(7, [2, 3])]),
        (
            {"begin_suppress_tokens": [8, 9]},
            [hf.SuppressTokensAtBeginLogitsProcessor([8, 9], len(PROMPT))],
        ),
        (
            {"exponential_decay_length_penalty": (1, 1.5), "eos_token_id": 2},
            [hf.ExponentialDecayLengthPenalty((1, 1.5), [2], len(PROMPT))],
        ),
        (
            {"do_sample": True, "temperature": 0.7, "typical_p": 0.5},
            [hf.TemperatureLogitsWarper(0.7), hf.TypicalLogitsWarper(0.5)],
        ),
        ({"do_sample": True, "epsilon_cutoff": 0.03}, [hf.EpsilonLogitsWarper(0.03)]),
        ({"do_sample": True, "eta_cutoff": 0.03}, [hf.EtaLogitsWarper(0.03)]),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_what_we_do_not_have_is_done_by_transformers(
    options: dict[str, Any], processors: list[Any]
) -> None:
    """PROC-11: n-gram bans look across what is drafted and what is emitted."""
    torch.testing.assert_close(scores(**options), by_transformers(*processors))


def test_invalid_values_are_removed_where_the_model_asks_for_it() -> None:
    built = LogitsPipeline(params(remove_invalid_values=True), PROMPT, (), V, LOGITS.device)
    broken = LOGITS[:1].clone()
    broken[0, 3] = math.nan
    assert float(built.scores(broken, [()])[0, 3]) == 0


@pytest.mark.parametrize(
    "option",
    [
        {"num_beams": 4},
        {"penalty_alpha": 0.6},
        {"guidance_scale": 1.5},
        {"dola_layers": "high"},
        {"forced_eos_token_id": 2},
        {"encoder_repetition_penalty": 1.2},
        {"token_healing": True},
    ],
    ids=str,
)
def test_what_cannot_be_honoured_is_refused_by_name(option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(OptionError, match=f"generation config: {name} is "):
        params_from_generation_config(SimpleNamespace(**option))


def test_neutral_values_of_refused_options_are_accepted() -> None:
    params(num_beams=1, guidance_scale=1.0, encoder_repetition_penalty=1.0, token_healing=False)


def test_ending_tokens_come_from_the_generation_config_first() -> None:
    model = SimpleNamespace(eos_token_id=5)
    assert eos_token_ids(config(eos_token_id=[2, 3, 2]), model) == (2, 3)
    assert eos_token_ids(config(eos_token_id=0), model) == (0,)
    assert eos_token_ids(config(), model) == (5,)
    assert eos_token_ids(None, None) == ()


def test_an_encoder_decoder_may_force_its_ends_and_ask_for_beams() -> None:
    """Loading says that beams are left out; what its texts begin with is the target's business."""
    wished = config(forced_bos_token_id=3, forced_eos_token_id=2, num_beams=4)
    assert len(params_from_generation_config(wished, reads_input=True).logits_processors) == 1
    with pytest.raises(OptionError, match="num_beams is 4"):
        params_from_generation_config(wished)
