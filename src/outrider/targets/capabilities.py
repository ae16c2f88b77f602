"""What a model must be able to do to be driven, worked out from its configuration alone.

Nothing is instantiated and no weights are read: the model class is looked up through
Transformers' auto mapping. Drafted tokens that were rejected must leave no trace in the model, so
a cache that cannot be cropped refuses the model here, before any work starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from outrider.errors import UnsupportedModelError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

    ModelClass: TypeAlias = type[PreTrainedModel]

CROPPABLE_LAYERS = frozenset({"full_attention", "sliding_attention"})
"""Layers whose whole state is one key and one value per token; every other kind is refused."""

# A configuration that lists no layer types but has one of these keeps a running state.
_STATE_FIELDS = ("conv_L_cache", "mamba_d_state", "ssm_state_size")

# Their layers do not tell one run from the next, so there is no one place to cache a token in.
_LOOPED_MODELS = frozenset({"hrm_text"})


@dataclass(frozen=True, slots=True)
class RollbackClass:
    """Whether rejected drafts can be taken out of a model's cache.

    `kind` is "crop" (drop the last rows) or "refused". `layer_type` names the layer that decided
    it, or "sliding_attention" where a croppable model has such layers; `reason` says why.
    """

    kind: Literal["crop", "refused"]
    layer_type: str | None = None
    reason: str | None = None


def causal_lm_class(config: PreTrainedConfig) -> ModelClass | None:
    """Return the class Transformers loads for text generation with this configuration, if any."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return None
    found = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    return found[0] if isinstance(found, tuple) else found


def reads_audio(config: PreTrainedConfig) -> bool:
    """Whether the model is a speech model that outrider knows: Whisper."""
    return bool(config.is_encoder_decoder) and config.model_type == "whisper"


def language_model_class(config: PreTrainedConfig) -> ModelClass | None:
    """Return the class of the model that writes text with this configuration, if there is any."""
    if not config.is_encoder_decoder:
        return causal_lm_class(config)
    from transformers import (
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
        MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING,
    )

    speaks = reads_audio(config)
    mapping: Any = (
        MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING if speaks else MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
    )
    if type(config) not in mapping:
        return None
    found: Any = mapping[type(config)]
    one: ModelClass = found[0] if isinstance(found, tuple) else found
    return one


def auto_class(config: PreTrainedConfig) -> Any:
    """Return the class of Transformers that loads a model with this configuration."""
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq

    if reads_audio(config):
        return AutoModelForSpeechSeq2Seq
    return AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM


def brings_its_own_class(config: PreTrainedConfig) -> bool:
    """Whether the model's class comes with the checkpoint, to be known only once it is loaded."""
    return "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})


def rollback_class(
    config: PreTrainedConfig, *, model_class: ModelClass | None = None
) -> RollbackClass:
    """Classify a model by how its cache forgets; `model_class` is looked up if it is not given."""
    text_config = config.get_text_config(decoder=True)
    layer_types = _layer_types(text_config)
    for layer_type in layer_types:
        if layer_type not in CROPPABLE_LAYERS:
            return RollbackClass(
                "refused",
                layer_type,
                f"it has {layer_type} layers, whose state cannot be cropped to an earlier token",
            )
    model_class = model_class or language_model_class(config)
    # Stateful models whose configuration does not list its layers (RWKV, xLSTM, ...).
    if model_class is not None and getattr(model_class, "_is_stateful", False):
        return RollbackClass(
            "refused",
            config.model_type,
            f"{model_class.__name__} keeps a recurrent state that cannot be cropped",
        )
    if "sliding_attention" in layer_types:
        window = getattr(text_config, "sliding_window", None)
        return RollbackClass("crop", "sliding_attention", f"sliding window of {window} tokens")
    return RollbackClass("crop")


def unsupported_reasons(
    config: PreTrainedConfig, *, model_class: ModelClass | None = None
) -> tuple[str, ...]:
    """Return every reason why outrider does not drive this model; empty if it does."""
    model_class = model_class or language_model_class(config)
    reasons = []
    is_pair = config.is_encoder_decoder
    if model_class is None:
        kind = (
            "an encoder-decoder model of text, or Whisper" if is_pair else "a causal language model"
        )
        reasons.append(f"model type {config.model_type!r} is not {kind}")
    elif not is_pair and _is_bidirectional(config):
        reasons.append(f"{model_class.__name__} reads text in both directions (is_decoder=False)")
    rollback = rollback_class(config, model_class=model_class)
    if rollback.kind == "refused" and rollback.reason is not None:
        reasons.append(rollback.reason)
    # Of encoder-decoders few declare it, and a pass is tried before any work.
    has_interface = is_pair or getattr(model_class, "_supports_attention_backend", False)
    if model_class is not None and not has_interface:
        reasons.append(f"{model_class.__name__} does not declare Transformers' attention interface")
    if config.model_type in _LOOPED_MODELS:
        reasons.append(f"{config.model_type} runs the same layers several times for one token")
    return tuple(reasons)


def require_supported(
    config: PreTrainedConfig, *, name: str, model_class: ModelClass | None = None
) -> None:
    """Raise UnsupportedModelError with all reasons if outrider cannot drive the model."""
    reasons = unsupported_reasons(config, model_class=model_class)
    if reasons:
        raise UnsupportedModelError(f"{name} is not supported: {'; '.join(reasons)}")


def _layer_types(config: PreTrainedConfig) -> tuple[str, ...]:
    """Return the kinds of layers a text configuration lists, or what its fields imply."""
    listed = getattr(config, "layer_types", None)
    if listed:
        return tuple(dict.fromkeys(listed))
    for field in _STATE_FIELDS:
        if getattr(config, field, None):
            return (f"recurrent ({field})",)
    if getattr(config, "sliding_window", None) is not None:
        return ("sliding_attention",)
    if getattr(config, "attention_chunk_size", None) is not None:
        return ("chunked_attention",)
    return ("full_attention",)


def _is_bidirectional(config: PreTrainedConfig) -> bool:
    """Tell an encoder apart: Transformers gives it a causal head, but masks nothing."""
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    return type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", True)
