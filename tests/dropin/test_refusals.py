"""What cannot be honoured is refused by name; what is held is let go."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from transformers import (
    DynamicCache,
    LogitsProcessorList,
    MambaConfig,
    MambaForCausalLM,
    StoppingCriteriaList,
)
from transformers.generation import logits_process as hf
from transformers.generation.stopping_criteria import EosTokenCriteria

import outrider
from outrider.drafters.prediction import PredictionDrafter
from outrider.errors import OptionError, OutriderError, UnsupportedModelError
from support.generating import assert_same_output, both, copying, family, knowing, prompts
from support.tiny import shared_model, tiny_model

CUT = {"do_sample": False, "max_new_tokens": 4}

REFUSED: dict[str, dict[str, Any]] = {
    "num_beams": {"num_beams": 2},
    "penalty_alpha": {"penalty_alpha": 0.6, "top_k": 4},
    "guidance_scale": {"guidance_scale": 1.5},
    "assistant_early_exit": {"assistant_early_exit": 1},
    "prompt_lookup_num_tokens": {"prompt_lookup_num_tokens": 3},
    "use_mtp": {"use_mtp": True},
    "dola_layers": {"dola_layers": "low"},
    "output_attentions": {"output_attentions": True, "return_dict_in_generate": True},
    "output_hidden_states": {"output_hidden_states": True, "return_dict_in_generate": True},
    "cache_implementation": {"cache_implementation": "offloaded"},
    "prefill_chunk_size": {"prefill_chunk_size": 2},
    "inputs_embeds": {"inputs_embeds": torch.zeros(1, 8, 32, dtype=torch.float64)},
    "position_ids": {"position_ids": torch.arange(3, 11)[None]},
    "SynthIDTextWatermarkLogitsProcessor": {
        "logits_processor": LogitsProcessorList(
            [hf.SynthIDTextWatermarkLogitsProcessor(3, [1, 2], 8, 0, 8, torch.device("cpu"))]
        )
    },
    "max_new_tokens": {"max_new_tokens": 250},
    "pad_token_id": {
        "stopping_criteria": StoppingCriteriaList([EosTokenCriteria(5)]),
        "pad_token_id": None,
    },
    "synced_gpus": {"synced_gpus": True},
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_honoured_is_refused_by_name(name: str) -> None:
    model = tiny_model(max_position_embeddings=200)
    if name == "pad_token_id":
        model.generation_config.pad_token_id = None
    generate: Any = model.generate
    with pytest.raises(OptionError, match=name):
        generate(**prompts(4), custom_generate=copying(), **(CUT | REFUSED[name]))


def test_a_model_whose_state_cannot_be_rolled_back_is_refused_by_its_layers() -> None:
    """CACHE-5: before the first token, and `generate` by itself goes on as ever."""
    make: Any = MambaForCausalLM  # its constructor is untyped
    config: Any = MambaConfig
    model = make(config(vocab_size=64, hidden_size=32, num_hidden_layers=2, state_size=4)).eval()
    model.generation_config.pad_token_id = 0
    before = model.generate(**prompts(4), **CUT)
    with pytest.raises(UnsupportedModelError, match="linear_attention"):
        model.generate(**prompts(4), custom_generate=copying(), **CUT)
    with pytest.raises(UnsupportedModelError, match="linear_attention"):
        outrider.load(model)
    assert model.generate(**prompts(4), **CUT).tolist() == before.tolist()


def test_an_assistant_is_refused_though_transformers_does_not_tell_of_it() -> None:
    """DRAFT-4: of two drafters none wins in silence."""
    generate: Any = shared_model().generate
    with pytest.raises(OptionError, match="assistant_model is 'LlamaForCausalLM'"):
        generate(**prompts(4), custom_generate=knowing(), assistant_model=tiny_model(), **CUT)


def test_a_cache_of_the_callers_is_refused_filled_or_empty() -> None:
    generate: Any = shared_model().generate
    for cache in (
        DynamicCache(),
        generate(**prompts(3), **CUT, return_dict_in_generate=True).cache,
    ):
        with pytest.raises(OptionError, match=r"cache is 'DynamicCache'.*past_key_values"):
            generate(**prompts(4), custom_generate=knowing(), cache=cache, **CUT)


@pytest.mark.parametrize(
    ("mask", "problem"), [([1, 1, 1, 0], "row 1 has zeros"), ([0, 0, 0, 0], "row 1 is empty")]
)
def test_masks_that_say_more_than_padding_are_refused(mask: list[int], problem: str) -> None:
    inputs = {"input_ids": torch.ones(2, 4).long(), "attention_mask": torch.tensor([[1] * 4, mask])}
    generate: Any = shared_model().generate
    with pytest.raises(OutriderError, match=problem):
        generate(**inputs, custom_generate=knowing(), **CUT)


def test_a_window_would_count_hidden_tokens_so_they_are_refused() -> None:
    inputs = prompts(4)
    inputs["attention_mask"][0, 3] = 0
    generate: Any = family("mistral").generate
    with pytest.raises(OptionError, match="attention_mask of row 0"):
        generate(**inputs, custom_generate=copying(), **CUT)


@pytest.mark.parametrize(
    "options",
    [
        {"drafter": "sufix"},
        {"drafter": "ngram,prediction"},
        {"drafter": PredictionDrafter()},
        {"rule": "guess"},
        {"max_draft": -1},
        {"max_batch": 0},
        {"numerics": "exact"},
        {"compile": 1},
        {"profile": True},
        {"seed": -1},
    ],
)
def test_options_of_outrider_are_checked_when_they_are_given(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        outrider.custom_generate(**options)


def test_a_model_in_training_is_refused_every_time() -> None:
    model, custom = tiny_model(), outrider.custom_generate(drafter="ngram")
    expected, found = both(model, prompts(4), custom)
    assert_same_output(found, expected)
    model.train()
    generate: Any = model.generate
    with pytest.raises(OptionError, match="training"):
        generate(**prompts(4), custom_generate=custom, **CUT)


def test_a_model_is_wrapped_once_and_let_go_with_its_last_user() -> None:
    model, custom = tiny_model(), outrider.custom_generate(drafter="ngram")
    both(model, prompts(4), custom)
    decoder = custom._decoders[model]
    both(model, prompts(5), custom)
    assert custom._decoders[model] is decoder
    gone = weakref.ref(model)
    del model, decoder
    gc.collect()
    assert gone() is None
    assert not custom._decoders


def test_a_models_own_options_do_not_stand_in_the_way_of_those_of_the_call() -> None:
    model = tiny_model()
    model.generation_config.num_beams = 4
    expected, found = both(model, prompts(4), outrider.custom_generate(), num_beams=1)
    assert_same_output(found, expected)
    assert model.generation_config.num_beams == 4
