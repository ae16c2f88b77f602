"""The options a model's own generation config asks for, as Transformers would honour them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from outrider.errors import OptionError
from outrider.sampling.custom import LimitRelative, NotFirst, PromptRelative, TailFilter
from outrider.sampling.params import SamplingParams

_TOP_K_WHEN_UNSET = 50
"""What Transformers samples with if a generation config leaves top_k open."""

# What changes the text and has no counterpart here, with the values that switch it off.
_REFUSED: dict[str, tuple[Any, ...]] = {
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "penalty_alpha": (0, 0.0),
    "dola_layers": (),
    "constraints": (),
    "force_words_ids": (),
    "guidance_scale": (1, 1.0),
    "token_healing": (False,),
    "watermarking_config": (),
    "encoder_repetition_penalty": (1, 1.0),
    "encoder_no_repeat_ngram_size": (0,),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "max_time": (),
    "top_h": (),
    "assistant_ensemble_weight": (),
}

# Of a speech model: times would be words of the text, and what falls below a threshold would be
# decoded anew at other temperatures.
_REFUSED_OF_SPEECH: dict[str, tuple[Any, ...]] = {
    "return_timestamps": (False,),
    "return_token_timestamps": (False,),
    "compression_ratio_threshold": (),
    "logprob_threshold": (),
    "no_speech_threshold": (),
}

# Of an encoder-decoder: its texts begin with the first (`Target.prompt_ids`), the second is
# honoured, and beams, which nearly all such models ask for, are left out: loading says so.
_OF_ENCODER_DECODERS = frozenset({"forced_bos_token_id", "forced_eos_token_id", "num_beams"})


def params_from_generation_config(
    config: Any | None, *, reads_input: bool = False, speech_tokens: int | None = None
) -> SamplingParams:
    """Return the options of a Transformers `GenerationConfig`; greedy if there is none.

    What the config asks for and cannot be honoured is an OptionError. `max_length` counts the
    prompt and is a limit of the model rather than a wish: it is not taken over. `reads_input`: the
    model is an encoder-decoder. `speech_tokens`: it is a speech model, whose texts have so many
    tokens at most; they are written to their end, and sampled only if the user says so.
    """
    if config is None:
        return SamplingParams()
    refused = _REFUSED if speech_tokens is None else _REFUSED | _REFUSED_OF_SPEECH
    for name, neutral in refused.items():
        if reads_input and name in _OF_ENCODER_DECODERS:
            continue
        value = getattr(config, name, None)
        if value is not None and value not in neutral:
            allowed = f"None or {neutral[0]}" if neutral else "None"
            raise OptionError(f"generation config: {name} is {value!r}: expected {allowed}")
    options = _native_options(config)
    if speech_tokens is not None and getattr(config, "max_new_tokens", None) is None:
        options["max_new_tokens"] = speech_tokens
    if speech_tokens is None and getattr(config, "do_sample", None):
        options |= _sampling_options(config)
    processors = (*_processors(config), *_tail_filters(config))
    return SamplingParams(**options, logits_processors=processors)


def eos_token_ids(generation_config: Any | None, config: Any | None) -> tuple[int, ...]:
    """Return the ids that end a text: the generation config's, or else the model config's."""
    for source in (generation_config, config):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            return tuple(dict.fromkeys([ids] if isinstance(ids, int) else map(int, ids)))
    return ()


def _native_options(config: Any) -> dict[str, Any]:
    """Return the options that hold whether decoding is greedy or sampled."""
    options: dict[str, Any] = {
        option: getattr(config, name)
        for option, name in (
            ("repetition_penalty", "repetition_penalty"),
            ("min_new_tokens", "min_new_tokens"),
            ("max_new_tokens", "max_new_tokens"),
            ("stop", "stop_strings"),
            ("n", "num_return_sequences"),
        )
        if getattr(config, name, None) is not None
    }
    # Our own limit must not be below what the config asks for at least.
    least = max(SamplingParams().max_new_tokens, options.get("min_new_tokens", 0))
    options.setdefault("max_new_tokens", least)
    bias = {ids[0]: amount for ids, amount in _sequence_bias(config) if len(ids) == 1}
    suppressed = getattr(config, "suppress_tokens", None) or ()
    options["logit_bias"] = bias | dict.fromkeys(suppressed, -math.inf)
    ending = {(token,) for token in eos_token_ids(config, None)}
    # Transformers never bans the end of the text by way of bad_words_ids.
    words = [tuple(word) for word in getattr(config, "bad_words_ids", None) or ()]
    options["bad_words"] = [word for word in words if word not in ending]
    return options


def _sampling_options(config: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"temperature": 1.0, "top_k": _TOP_K_WHEN_UNSET}
    for name in ("temperature", "top_k", "top_p", "min_p"):
        value = getattr(config, name, None)
        if value is not None:
            options[name] = value
    return options


def _sequence_bias(config: Any) -> list[tuple[tuple[int, ...], float]]:
    """Return sequence_bias as pairs; Transformers takes a dict or a list of pairs."""
    bias = getattr(config, "sequence_bias", None) or {}
    pairs: Iterable[Any] = bias.items() if isinstance(bias, dict) else bias
    return [(tuple(ids), float(amount)) for ids, amount in pairs]


def _processors(config: Any) -> list[Any]:
    """Return Transformers' own processors for what has no native option, in its order."""
    from transformers.generation import logits_process as hf

    ending = list(eos_token_ids(config, None))
    processors: list[Any] = []
    phrases: list[list[list[int] | float]] = [
        [list(ids), amount] for ids, amount in _sequence_bias(config) if len(ids) > 1
    ]
    if phrases:
        processors.append(hf.SequenceBiasLogitsProcessor(phrases))
    if getattr(config, "no_repeat_ngram_size", None):
        processors.append(hf.NoRepeatNGramLogitsProcessor(config.no_repeat_ngram_size))
    if getattr(config, "min_length", None) and ending:
        processors.append(hf.MinLengthLogitsProcessor(config.min_length, ending))
    if getattr(config, "remove_invalid_values", None):
        processors.append(hf.InfNanRemoveLogitsProcessor())
    decay = getattr(config, "exponential_decay_length_penalty", None)
    if decay is not None:
        build = partial(hf.ExponentialDecayLengthPenalty, tuple(decay), ending)
        processors.append(PromptRelative(build))
    last = getattr(config, "forced_eos_token_id", None)
    if last is not None:

        def force_end(limit: int) -> Any:
            return hf.ForcedEOSTokenLogitsProcessor(limit, last)

        processors.append(LimitRelative(force_end))
    first = getattr(config, "begin_suppress_tokens", None)
    if first:
        processors.append(NotFirst(tuple(first)))
    return processors


def _tail_filters(config: Any) -> list[TailFilter]:
    from transformers.generation import logits_process as hf

    kinds: list[tuple[str, Callable[[float], Any]]] = [
        ("typical_p", hf.TypicalLogitsWarper),
        ("epsilon_cutoff", hf.EpsilonLogitsWarper),
        ("eta_cutoff", hf.EtaLogitsWarper),
    ]
    found = [(getattr(config, name, None), build) for name, build in kinds]
    return [TailFilter(build(value)) for value, build in found if value and value < 1]
