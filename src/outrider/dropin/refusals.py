"""What `generate` can be asked for and outrider does not do: refused by name, before any work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers.generation import logits_process as hf

from outrider.errors import OptionError

_BEAMS = "outrider decodes each text by itself, without beams"
_DRAFTS = "outrider drafts itself: name a drafter in custom_generate(...)"
_CACHE = "outrider keeps a cache of its own"

# Option of the generation config: the values that ask for nothing else, and why others are refused.
_OPTIONS: dict[str, tuple[tuple[Any, ...], str]] = {
    "num_beams": ((1,), _BEAMS),
    "num_beam_groups": ((1,), _BEAMS),
    "constraints": ((), _BEAMS),
    "force_words_ids": ((), _BEAMS),
    "dola_layers": ((), "outrider knows no DoLa decoding"),
    "guidance_scale": ((1,), "outrider decodes one text, not a second one to set it off against"),
    "assistant_early_exit": ((), _DRAFTS),
    "prompt_lookup_num_tokens": ((), _DRAFTS),
    "use_mtp": ((False,), _DRAFTS),
    "speculation_type": ((), _DRAFTS),
    "assistant_ensemble_weight": ((), "outrider does not change the target's distribution"),
    "cache_implementation": (("dynamic", "static", "hybrid", "sliding_window"), _CACHE),
    "prefill_chunk_size": ((), _CACHE),
    "compile_config": ((), "outrider compiles passes itself: custom_generate(compile=True)"),
}

# Arguments of the model that say nothing, or what `Call` reads.
_KNOWN_ARGUMENTS = frozenset(
    ("attention_mask", "position_ids", "cache", "past_key_values", "use_cache", "logits_to_keep")
)
_RECORDED = ("output_attentions", "output_hidden_states")

# They remember earlier steps, or read the rows of a batch together.
_STATEFUL = (
    hf.UnbatchedClassifierFreeGuidanceLogitsProcessor,
    hf.ClassifierFreeGuidanceLogitsProcessor,
    hf.SynthIDTextWatermarkLogitsProcessor,
    hf.AlternatingCodebooksLogitsProcessor,
    hf.WhisperNoSpeechDetection,
    hf.DiaClassifierFreeGuidanceLogitsProcessor,
    hf.DiaEOSChannelFilterLogitsProcessor,
    hf.DiaEOSDelayPatternLogitsProcessor,
)


def require_options(config: Any) -> None:
    """Raise OptionError for an option of the generation config that cannot be honoured."""
    for name, (neutral, reason) in _OPTIONS.items():
        value = getattr(config, name, None)
        if value is not None and value not in neutral:
            raise _refusal(name, value, reason)
    is_contrastive = getattr(config, "penalty_alpha", None) and not config.do_sample
    if is_contrastive and (config.top_k or 0) > 1:
        raise _refusal(
            "penalty_alpha", config.penalty_alpha, "outrider knows no contrastive search"
        )
    for name in _RECORDED:
        if config.return_dict_in_generate and getattr(config, name, False):
            raise _refusal(name, True, "outrider returns scores and logits, and no more")


def require_arguments(arguments: Mapping[str, Any]) -> None:
    """Raise OptionError for arguments of the model that its passes would have to be given."""
    cache = arguments.get("cache", arguments.get("past_key_values"))
    if cache is not None and (
        getattr(cache, "_is_user_defined", False) or cache.get_seq_length() > 0
    ):
        raise _refusal("cache", type(cache).__name__, f"{_CACHE}, and takes none (past_key_values)")
    for name, value in arguments.items():
        is_idle = value is None or value is False or name in _RECORDED
        if name not in _KNOWN_ARGUMENTS and not is_idle:
            raise OptionError(f"generate: outrider does not hand {name} on to the model; leave it")


def require_alone(assistant_model: Any, synced_gpus: Any) -> None:
    """Raise OptionError for an assistant, and for a model that several processes run in step."""
    if assistant_model is not None:
        raise _refusal("assistant_model", type(assistant_model).__name__, _DRAFTS)
    if synced_gpus:
        raise _refusal("synced_gpus", synced_gpus, "outrider runs in one process")


def require_stateless(processors: Any) -> None:
    """Raise OptionError for a processor known to be more than a function of one row."""
    for processor in processors:
        if isinstance(processor, _STATEFUL):
            name = type(processor).__name__
            raise OptionError(
                f"generate: {name} keeps state from step to step, or reads rows together, which "
                "drafted tokens would upset"
            )


def _refusal(name: str, value: object, reason: str) -> OptionError:
    return OptionError(f"generate: {name} is {value!r}: {reason}")
