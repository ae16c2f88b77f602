"""Filling a head with its tensors: every one it has, no other, each of its shape."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from outrider.errors import LoadError


def fill(head: nn.Module, tensors: Mapping[str, Tensor], kind: str) -> None:
    """Make the tensors the head's own, without copying those that fit as they are.

    A head half filled drafts noise without an error, so the first tensor that is missing, unknown
    or of another shape is a LoadError that names it; `kind` says what is being filled.
    """
    expected: dict[str, Tensor] = head.state_dict()
    for name, place in expected.items():
        _check(kind, name, place, tensors.get(name))
    for name in tensors:
        if name not in expected:
            raise LoadError(f"{kind} has no place for the tensor {name}")
    fitting = {
        name: tensors[name] if place.is_floating_point() else tensors[name].to(place.dtype)
        for name, place in expected.items()
    }
    head.load_state_dict(fitting, assign=True)


def _check(kind: str, name: str, place: Tensor, tensor: Tensor | None) -> None:
    wanted = list(place.shape)
    if tensor is None:
        raise LoadError(f"{kind} misses the tensor {name} {wanted}")
    if tensor.shape != place.shape:
        raise LoadError(f"{kind} has {name} of shape {list(tensor.shape)}, {wanted} is expected")
    if tensor.is_floating_point() != place.is_floating_point():
        numbers = "floating-point" if place.is_floating_point() else "whole"
        raise LoadError(f"{kind} has {name} in {tensor.dtype}, {numbers} numbers are expected")
