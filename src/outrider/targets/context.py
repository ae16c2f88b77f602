"""How many tokens a sequence can hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_UNBOUNDED = 2**31 - 1

# With these the rotation of every row of a pass depends on the furthest row in it, so a row scored
# beside drafts would differ from the same row alone. Up to the original length nothing changes.
_PASS_DEPENDENT_ROPE = frozenset({"dynamic", "longrope"})


def usable_positions(config: PreTrainedConfig) -> int:
    """Return the most tokens a sequence of this model can hold, prompt and output together."""
    text_config = config.get_text_config(decoder=True)
    positions = (
        getattr(text_config, "max_position_embeddings", None)
        or getattr(text_config, "max_target_positions", None)  # as Whisper has it
        or _UNBOUNDED
    )
    for rope in _rope_parameters(getattr(text_config, "rope_parameters", None)):
        if rope.get("rope_type") in _PASS_DEPENDENT_ROPE:
            original = rope.get("original_max_position_embeddings") or getattr(
                text_config, "original_max_position_embeddings", None
            )
            positions = min(positions, original or positions)
    return int(positions)


def _rope_parameters(parameters: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the rope settings of a model: one, or one for each kind of layer."""
    if not isinstance(parameters, Mapping):
        return
    if "rope_type" in parameters:
        yield parameters
        return
    for nested in parameters.values():
        yield from _rope_parameters(nested)
