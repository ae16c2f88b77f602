"""What an optimizer remembers comes back to the parameter it belongs to, or not at all."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from outrider.errors import LoadError
from outrider.training.optimizer import build_optimizer, optimizer_tensors, restore_optimizer
from outrider.training.settings import TrainOptions

OPTIONS = TrainOptions(learning_rate=0.1, weight_decay=0.5)


def pair(seed: int = 0) -> tuple[nn.Module, AdamW]:
    """Return a small module and its optimizer."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    return module, build_optimizer(module, OPTIONS)


def step(module: nn.Module, optimizer: AdamW, size: float) -> None:
    optimizer.zero_grad()
    module(torch.full((2, 3), size)).square().sum().backward()
    optimizer.step()


def test_a_restored_optimizer_goes_on_as_the_first_would_have() -> None:
    module, optimizer = pair()
    step(module, optimizer, 1.0)
    other, restored = pair(seed=1)
    other.load_state_dict(module.state_dict())
    restore_optimizer(restored, other, optimizer_tensors(optimizer, module))
    for size in (2.0, 3.0):
        step(module, optimizer, size)
        step(other, restored, size)
    for name, tensor in module.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


def test_what_never_had_a_gradient_has_nothing_to_remember() -> None:
    module, optimizer = pair()
    assert optimizer_tensors(optimizer, module) == {}
    restore_optimizer(optimizer, module, {})
    optimizer.zero_grad()
    module.get_submodule("0")(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    names = {name.rpartition(".")[0] for name in optimizer_tensors(optimizer, module)}
    assert names == {"0.weight", "0.bias"}


def test_matrices_decay_and_norms_and_biases_do_not() -> None:
    module, optimizer = pair()
    before = {name: one.clone() for name, one in module.named_parameters()}
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in module.named_parameters():
        wanted = before[name] * (1 - 0.1 * 0.5) if parameter.dim() > 1 else before[name]
        torch.testing.assert_close(parameter.detach(), wanted, msg=name)


def test_a_memory_that_does_not_fit_is_refused_by_name() -> None:
    module, optimizer = pair()
    step(module, optimizer, 1.0)
    known = optimizer_tensors(optimizer, module)
    cases = {
        r"9\.weight\.step is of no parameter": known | {"9.weight.step": torch.tensor(1.0)},
        r"0\.bias\.other is of no parameter": known | {"0.bias.other": torch.zeros(4)},
        r"0\.bias\.exp_avg has shape \[3\]": known | {"0.bias.exp_avg": torch.zeros(3)},
        "is incomplete": {n: one for n, one in known.items() if n != "0.bias.exp_avg_sq"},
    }
    for message, tensors in cases.items():
        with pytest.raises(LoadError, match=message):
            restore_optimizer(optimizer, module, tensors)
