"""Which models may be driven is decided from the configuration, before any work."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoConfig,
    BertConfig,
    BloomConfig,
    Gemma2Config,
    GPT2Config,
    GPTNeoXConfig,
    JambaConfig,
    Lfm2Config,
    Llama4TextConfig,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen3NextConfig,
    RecurrentGemmaConfig,
    RwkvConfig,
    RwkvForCausalLM,
    Speech2TextConfig,
    T5Config,
    ViTConfig,
    WhisperConfig,
)

from outrider.errors import UnsupportedModelError
from outrider.targets.capabilities import (
    causal_lm_class,
    require_supported,
    rollback_class,
    unsupported_reasons,
)


@pytest.mark.parametrize("config", [LlamaConfig(), GPT2Config(), GPTNeoXConfig()])
def test_attention_caches_are_cropped(config: PreTrainedConfig) -> None:
    assert rollback_class(config).kind == "crop"
    assert rollback_class(config).layer_type is None
    assert unsupported_reasons(config) == ()


@pytest.mark.parametrize(
    ("config", "window"), [(Gemma2Config(), 4096), (MistralConfig(sliding_window=8), 8)]
)
def test_sliding_windows_are_croppable_and_noted(config: PreTrainedConfig, window: int) -> None:
    rollback = rollback_class(config)
    assert (rollback.kind, rollback.layer_type) == ("crop", "sliding_attention")
    assert rollback.reason == f"sliding window of {window} tokens"
    assert unsupported_reasons(config) == ()


@pytest.mark.parametrize(
    ("config", "layer_type"),
    [
        (MambaConfig(), "linear_attention"),
        (JambaConfig(), "linear_attention"),
        (RecurrentGemmaConfig(), "linear_attention"),
        (Qwen3NextConfig(), "linear_attention"),
        (
            Lfm2Config(
                num_hidden_layers=4,
                layer_types=["conv", "conv", "full_attention", "full_attention"],
            ),
            "conv",
        ),
        (Llama4TextConfig(), "chunked_attention"),
    ],
)
def test_layers_that_cannot_forget_are_refused_by_name(
    config: PreTrainedConfig, layer_type: str
) -> None:
    """CACHE-5: before any work, by the class of the layers."""
    rollback = rollback_class(config)
    assert (rollback.kind, rollback.layer_type) == ("refused", layer_type)
    with pytest.raises(UnsupportedModelError, match=f"my-model is not supported: .*{layer_type}"):
        require_supported(config, name="my-model")


def test_a_stateful_model_that_lists_no_layers_is_refused() -> None:
    rollback = rollback_class(RwkvConfig())
    assert rollback.kind == "refused"
    assert rollback.reason is not None and "RwkvForCausalLM" in rollback.reason


def test_a_state_field_without_layer_types_is_refused() -> None:
    config = AutoConfig.for_model("lfm2_moe", num_hidden_layers=2)
    config.layer_types = None
    assert rollback_class(config).layer_type == "recurrent (conv_L_cache)"


def test_of_encoder_decoders_those_of_text_can_be_driven_and_of_speech_models_whisper() -> None:
    for config in (T5Config(), WhisperConfig()):
        assert rollback_class(config).kind == "crop"
        assert unsupported_reasons(config) == ()
    (reason,) = unsupported_reasons(Speech2TextConfig())
    assert reason == (
        "model type 'speech_to_text' is not an encoder-decoder model of text, or Whisper"
    )


def test_an_encoder_loaded_as_a_causal_model_is_refused() -> None:
    (reason,) = unsupported_reasons(BertConfig())
    assert reason == "BertLMHeadModel reads text in both directions (is_decoder=False)"
    assert unsupported_reasons(BertConfig(is_decoder=True)) == ()


def test_a_model_that_writes_no_text_is_refused() -> None:
    assert causal_lm_class(ViTConfig()) is None
    with pytest.raises(UnsupportedModelError, match="model type 'vit' is not a causal"):
        require_supported(ViTConfig(), name="my-model")


def test_models_outside_the_attention_interface_are_refused() -> None:
    (reason,) = unsupported_reasons(BloomConfig())
    assert reason == "BloomForCausalLM does not declare Transformers' attention interface"
    assert rollback_class(BloomConfig()).kind == "crop"


def test_models_that_loop_over_their_layers_are_refused() -> None:
    (reason,) = unsupported_reasons(AutoConfig.for_model("hrm_text"))
    assert reason == "hrm_text runs the same layers several times for one token"


def test_the_class_of_a_loaded_model_decides_over_the_look_up() -> None:
    assert rollback_class(LlamaConfig(), model_class=RwkvForCausalLM).kind == "refused"


def test_classification_instantiates_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("a module was built")

    monkeypatch.setattr(torch.nn.Module, "__init__", forbidden)
    assert unsupported_reasons(LlamaConfig()) == ()
