"""AdamW over the parameters of a module, and its state as named tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from outrider.errors import LoadError, OptionError

if TYPE_CHECKING:
    from outrider.training.settings import TrainOptions

_BETAS = (0.9, 0.95)
_FIELDS = ("step", "exp_avg", "exp_avg_sq")


def trained(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are learnt, by name.

    Raises OptionError if there are none, and for one in half precision, which would lose most of
    what a step adds to it.
    """
    found = {name: one for name, one in module.named_parameters() if one.requires_grad}
    if not found:
        raise OptionError(f"{type(module).__name__} has no parameter to be trained")
    for name, one in found.items():
        if one.dtype not in (torch.float32, torch.float64):
            form = str(one.dtype).removeprefix("torch.")
            raise OptionError(f"parameter {name} is {form}; training needs float32")
    return found


def build_optimizer(module: nn.Module, options: TrainOptions) -> AdamW:
    """Return an AdamW for what is learnt in a module; matrices decay, norms and biases do not."""
    parameters = list(trained(module).values())
    matrices = [one for one in parameters if one.dim() > 1]
    others = [one for one in parameters if one.dim() <= 1]
    groups = [(matrices, options.weight_decay), (others, 0.0)]
    return AdamW(
        [{"params": part, "weight_decay": decay} for part, decay in groups if part],
        lr=options.learning_rate,
        betas=_BETAS,
    )


def optimizer_tensors(optimizer: AdamW, module: nn.Module) -> dict[str, Tensor]:
    """Return all an optimizer remembers, as `parameter.field`."""
    return {
        f"{name}.{field}": optimizer.state[parameter][field]
        for name, parameter in trained(module).items()
        if parameter in optimizer.state
        for field in _FIELDS
    }


def restore_optimizer(optimizer: AdamW, module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put back what an optimizer remembered; raises LoadError for what is not of this module."""
    parameters = trained(module)
    places = [one for group in optimizer.param_groups for one in group["params"]]
    index = {id(parameter): place for place, parameter in enumerate(places)}
    state: dict[int, dict[str, Any]] = {}
    for key, tensor in tensors.items():
        name, _, field = key.rpartition(".")
        if name not in parameters or field not in _FIELDS:
            raise LoadError(f"the optimizer's {key} is of no parameter that is trained here")
        if field != "step" and tensor.shape != parameters[name].shape:
            raise LoadError(
                f"the optimizer's {key} has shape {list(tensor.shape)}, "
                f"its parameter {list(parameters[name].shape)}"
            )
        state.setdefault(index[id(parameters[name])], {})[field] = tensor.clone()
    for place, fields in state.items():
        if fields.keys() != set(_FIELDS):
            raise LoadError(f"the optimizer's state of parameter {place} is incomplete")
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
