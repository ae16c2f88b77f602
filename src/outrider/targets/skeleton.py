"""A model without storage: shapes only, to know sizes before any weight is read."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from outrider.errors import LoadError
from outrider.targets.capabilities import (
    auto_class,
    brings_its_own_class,
    language_model_class,
    reads_audio,
)
from outrider.targets.quiet import quiet_transformers

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel


def build_skeleton(
    config: PreTrainedConfig, name: str, *, trust_remote_code: bool
) -> PreTrainedModel | None:
    """Build the model with shapes and no storage; None if Transformers has no such language model.

    Raises LoadError for a configuration no model can be built from.
    """
    import torch

    is_trusted = trust_remote_code and brings_its_own_class(config)
    if language_model_class(config) is None and not is_trusted:
        return None
    from_config: Any = auto_class(config).from_config
    try:
        with quiet_transformers(), torch.device("meta"):
            # Only shapes matter; without storage, experts compute in bfloat16 alone.
            model: PreTrainedModel = from_config(
                # It notes the dtype in the configuration it is given.
                deepcopy(config),
                dtype=torch.bfloat16,
                trust_remote_code=trust_remote_code,
            )
    except Exception as error:
        reason = " ".join(str(error).split())
        raise LoadError(f"cannot load {name}: no usable config.json ({reason})") from error
    module: torch.nn.Module = model
    module.eval()
    return model


def count_parameters(skeleton: PreTrainedModel) -> int:
    """Return the number of weights, each shared one counted once."""
    return sum(parameter.numel() for parameter in skeleton.parameters())


def kv_bytes_per_token(skeleton: PreTrainedModel, dtype: torch.dtype) -> int | None:
    """Return what one token adds to a cache in `dtype`, by caching one that has no storage."""
    import torch

    run: Any = skeleton
    try:
        with quiet_transformers():
            token = torch.zeros(1, 1, dtype=torch.long, device="meta")
            is_pair = skeleton.config.is_encoder_decoder
            options = {"decoder_input_ids": token} if is_pair else {}
            given = _features(skeleton.config) if reads_audio(skeleton.config) else token
            output = run(given, use_cache=True, **options)
            cache = output.past_key_values
            layers = (cache.self_attention_cache if is_pair else cache).layers
    except RuntimeError:  # the model asks for a value, and there are none
        return None
    numbers = 0
    for layer in layers:
        if layer.keys is not None:  # else it reads another layer's
            numbers += layer.keys.numel() + layer.values.numel()
    return numbers * dtype.itemsize


def _features(config: PreTrainedConfig) -> torch.Tensor:
    """Return features [1, mels, frames] without storage, for the encoder of a speech model."""
    import torch

    sizes: Any = config
    # It makes one position of two frames.
    shape = (1, sizes.num_mel_bins, 2 * sizes.max_source_positions)
    return torch.zeros(shape, dtype=torch.bfloat16, device="meta")
