"""What requests and models need of memory: planned up front, refused with the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.errors import LoadError, OptionError
from outrider.targets.free_memory import available_memory
from outrider.targets.offload import execution_device

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What requests need beside the weights that are loaded already; all but counts in bytes."""

    weights: int
    cache: int
    logits: int
    available: int
    """Free memory, the weights being loaded."""

    sequences: int
    tokens: int
    """Tokens that each has room for, prompt, output and drafts together."""

    rows: int
    """Rows of the largest pass whose logits are kept."""

    held: int = 0
    """Bytes of that cache which are there already."""

    inputs: int = 0
    """Bytes still to be found for what an encoder makes of inputs."""

    @property
    def needed(self) -> int:
        """Bytes of cache, inputs and logits that are still to be found."""
        return self.cache - self.held + self.inputs + self.logits


def plan_memory(
    model: PreTrainedModel,
    *,
    sequences: int,
    tokens: int,
    rows: int,
    kv_bytes_per_token: int,
    held: int = 0,
    inputs: int = 0,
) -> MemoryPlan:
    """Plan the memory of `sequences` caches of `tokens` tokens and a pass of `rows` rows.

    Of the caches `held` bytes are there already; `inputs` are those that an encoder reads. Logits
    count twice, as the model gives them and in the float32 they are sampled in.
    """
    vocab_size = model.config.get_text_config(decoder=True).vocab_size
    loaded = [t for t in (*model.parameters(), *model.buffers()) if t.device.type != "meta"]
    devices = {execution_device(model), *(tensor.device for tensor in loaded)}
    return MemoryPlan(
        weights=sum(tensor.nbytes for tensor in loaded),
        cache=sequences * tokens * kv_bytes_per_token,
        logits=rows * vocab_size * (model.dtype.itemsize + 4),
        available=sum(available_memory(device) for device in devices),
        sequences=sequences,
        tokens=tokens,
        rows=rows,
        held=held,
        inputs=inputs,
    )


def require_fits(plan: MemoryPlan) -> None:
    """Raise OptionError with all numbers if a plan asks for more than there is."""
    if plan.needed <= plan.available:
        return
    per_token = plan.cache / max(1, plan.sequences * plan.tokens)
    held = f", of which {bytes_in_words(plan.held)} are held," if plan.held else ""
    held += f" {bytes_in_words(plan.inputs)} for what is read," if plan.inputs else ""
    raise OptionError(
        f"the request needs {bytes_in_words(plan.cache)} of cache "
        f"({_counted(plan.sequences, 'sequence')} of {_counted(plan.tokens, 'token')} at "
        f"{bytes_in_words(per_token)}){held} and {bytes_in_words(plan.logits)} for the logits of "
        f"{_counted(plan.rows, 'row')}, beside {bytes_in_words(plan.weights)} of weights; "
        f"{bytes_in_words(plan.available)} are free"
    )


def require_room(name: str, needed: int, dtype: str, device: torch.device, available: int) -> None:
    """Raise LoadError with the numbers if the weights of a model do not fit on a device."""
    if needed > available:
        raise LoadError(
            f"cannot load {name}: its weights take {bytes_in_words(needed)} in {dtype}, and "
            f"{bytes_in_words(available)} are free on {device}; device='auto' offloads what does "
            "not fit"
        )


def bytes_in_words(number: float) -> str:
    """Return a size as people read it, such as "12.5 KiB"."""
    if number < 1024:
        return f"{number:,.0f} bytes"
    for unit in ("KiB", "MiB", "GiB"):
        number /= 1024
        if number < 1024:
            return f"{number:,.1f} {unit}"
    return f"{number / 1024:,.1f} TiB"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
