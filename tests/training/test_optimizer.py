"""What an optimizer remembers comes back to the parameter it belongs to, or not at all."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from outrider.errors import LoadError
from outrider.training.optimizer import Optimizer, OptimizerName
from outrider.training.settings import TrainOptions

RATE = 0.1
NAMES: list[OptimizerName] = ["adamw", "muon"]


def pair(name: OptimizerName, seed: int = 0) -> tuple[nn.Module, Optimizer]:
    """Return a small module and its optimizer."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    return module, Optimizer(module, TrainOptions(optimizer=name, weight_decay=0.5))


def step(module: nn.Module, optimizer: Optimizer, size: float) -> None:
    module.zero_grad()
    module(torch.full((2, 3), size)).square().sum().backward()
    optimizer.step(RATE)


@pytest.mark.parametrize("name", NAMES)
def test_a_restored_optimizer_goes_on_as_the_first_would_have(name: OptimizerName) -> None:
    module, optimizer = pair(name)
    step(module, optimizer, 1.0)
    other, restored = pair(name, seed=1)
    other.load_state_dict(module.state_dict())
    restored.restore(optimizer.tensors())
    for size in (2.0, 3.0):
        step(module, optimizer, size)
        step(other, restored, size)
    for key, tensor in module.state_dict().items():
        assert torch.equal(other.state_dict()[key], tensor), key


@pytest.mark.parametrize("name", NAMES)
def test_what_never_had_a_gradient_has_nothing_to_remember(name: OptimizerName) -> None:
    module, optimizer = pair(name)
    assert optimizer.tensors() == {}
    optimizer.restore({})
    module.get_submodule("0")(torch.ones(2, 3)).sum().backward()
    optimizer.step(RATE)
    assert {key.rpartition(".")[0] for key in optimizer.tensors()} == {"0.weight", "0.bias"}


@pytest.mark.parametrize("name", NAMES)
def test_matrices_decay_and_norms_and_biases_do_not(name: OptimizerName) -> None:
    module, optimizer = pair(name)
    before = {key: one.clone() for key, one in module.named_parameters()}
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step(RATE)
    for key, parameter in module.named_parameters():
        wanted = before[key] * (1 - RATE * 0.5) if parameter.dim() > 1 else before[key]
        torch.testing.assert_close(parameter.detach(), wanted, msg=key)


def test_a_step_of_muon_is_as_long_in_every_direction_a_matrix_has() -> None:
    layer = nn.Linear(6, 4, bias=False)
    before = layer.weight.detach().clone()
    layer.weight.grad = torch.diag(torch.tensor([1e3, 1.0, 1.0, 1e-1])) @ torch.eye(4, 6)
    Optimizer(layer, TrainOptions(optimizer="muon", weight_decay=0.0)).step(RATE)
    lengths = torch.linalg.svdvals((before - layer.weight).detach())[:3]
    assert lengths.max() < 2 * lengths.min()


def test_rows_of_tokens_are_left_to_adamw() -> None:
    module = nn.ModuleDict({"lm_head": nn.Linear(3, 8), "q_proj": nn.Linear(3, 4)})
    optimizer = Optimizer(module, TrainOptions(optimizer="muon"))
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step(RATE)
    assert {key for key in optimizer.tensors() if key.endswith("momentum_buffer")} == {
        "q_proj.weight.momentum_buffer"
    }


def test_a_memory_that_does_not_fit_is_refused_by_name() -> None:
    module, optimizer = pair("adamw")
    step(module, optimizer, 1.0)
    known = optimizer.tensors()
    cases: dict[str, dict[str, Tensor]] = {
        r"9\.weight is of no parameter": known | {"9.weight.step": torch.tensor(1.0)},
        r"step of 0\.bias, expected": known | {"0.bias.other": torch.zeros(4)},
        r"0\.bias\.exp_avg has shape \[3\]": known | {"0.bias.exp_avg": torch.zeros(3)},
        "remembers exp_avg, step of": {
            key: one for key, one in known.items() if key != "0.bias.exp_avg_sq"
        },
    }
    for message, tensors in cases.items():
        with pytest.raises(LoadError, match=message):
            optimizer.restore(tensors)


def test_the_memory_of_another_optimizer_is_refused() -> None:
    module, optimizer = pair("muon")
    step(module, optimizer, 1.0)
    _, other = pair("adamw")
    with pytest.raises(LoadError, match="remembers momentum_buffer of 0"):
        other.restore(optimizer.tensors())
