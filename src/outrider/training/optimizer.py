"""What changes the weights of a module by their gradients, and what it remembers, as named tensors.

Muon (Keller Jordan et al. 2024) makes the singular values of a step alike, so that a matrix learns
in all directions at once and not in a few strong ones first. Its steps are as long as AdamW's
would be (2502.16982, section 2.2): both take the same learning rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon

from outrider.errors import LoadError, OptionError

if TYPE_CHECKING:
    from outrider.training.settings import TrainOptions

OptimizerName: TypeAlias = Literal["adamw", "muon"]

_BETAS = (0.9, 0.95)
_FIELDS: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    AdamW: ("step", "exp_avg", "exp_avg_sq"),
    Muon: ("momentum_buffer",),
}
_WORDS = ("embed", "lm_head", "output")
"""In the names of matrices with a row for each token: most rows have no gradient in a step."""


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


class Optimizer:
    """AdamW over what is learnt in a module, or Muon over its matrices and AdamW over the rest.

    Matrices decay, norms and biases do not.
    """

    def __init__(self, module: nn.Module, options: TrainOptions) -> None:
        self._parameters = trained(module)
        is_muon = options.optimizer == "muon"
        by_muon = {
            name
            for name, one in self._parameters.items()
            if is_muon and one.dim() == 2 and not any(word in name for word in _WORDS)
        }
        rest = [one for name, one in self._parameters.items() if name not in by_muon]
        decay = options.weight_decay
        groups = [
            {"params": [one for one in rest if one.dim() > 1], "weight_decay": decay},
            {"params": [one for one in rest if one.dim() <= 1], "weight_decay": 0.0},
        ]
        self._parts: list[torch.optim.Optimizer] = []
        if rest:
            filled = [group for group in groups if group["params"]]
            self._parts.append(AdamW(filled, betas=_BETAS))
        if by_muon:
            matrices = [self._parameters[name] for name in sorted(by_muon)]
            self._parts.append(Muon(matrices, weight_decay=decay, adjust_lr_fn="match_rms_adamw"))

    def step(self, rate: float) -> None:
        """Go a step along the gradients, at a learning rate."""
        for part in self._parts:
            for group in part.param_groups:
                group["lr"] = rate
            part.step()

    def tensors(self) -> dict[str, Tensor]:
        """Return all that is remembered, as `parameter.field`."""
        return {
            f"{name}.{field}": part.state[parameter][field]
            for part in self._parts
            for name, parameter in self._parameters.items()
            if parameter in part.state
            for field in _FIELDS[type(part)]
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what was remembered; raises LoadError for what is not of this module."""
        found: dict[str, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            name, _, field = key.rpartition(".")
            found.setdefault(name, {})[field] = tensor
        names = {id(parameter): name for name, parameter in self._parameters.items()}
        for part in self._parts:
            places = [names[id(one)] for group in part.param_groups for one in group["params"]]
            memory = {name: found.pop(name) for name in places if name in found}
            for name, fields in memory.items():
                self._check(name, fields, _FIELDS[type(part)])
            state = {places.index(name): _copied(fields) for name, fields in memory.items()}
            part.load_state_dict(part.state_dict() | {"state": state})
        for name in found:
            raise LoadError(f"the optimizer's memory of {name} is of no parameter that is trained")

    def _check(self, name: str, fields: Mapping[str, Tensor], wanted: Iterable[str]) -> None:
        if fields.keys() != set(wanted):
            raise LoadError(
                f"the optimizer remembers {', '.join(sorted(fields))} of {name}, "
                f"expected {', '.join(sorted(wanted))}"
            )
        shape = self._parameters[name].shape
        for field, tensor in fields.items():
            if field != "step" and tensor.shape != shape:
                raise LoadError(
                    f"the optimizer's {name}.{field} has shape {list(tensor.shape)}, "
                    f"its parameter {list(shape)}"
                )


def _copied(fields: Mapping[str, Tensor]) -> dict[str, Any]:
    return {field: tensor.clone() for field, tensor in fields.items()}
