"""What states have in common, found in closed form."""

from __future__ import annotations

import torch

from outrider.training.copying.codes import norm_slope, quiet_directions, shared_code, spoken_code


def drawn(rows: int, width: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def test_what_two_states_share_is_found_in_both() -> None:
    said = drawn(2000, 3, 0)
    x = said @ drawn(3, 8, 1) + 0.1 * drawn(2000, 8, 2) + 5.0
    y = said @ drawn(3, 6, 3) + 0.1 * drawn(2000, 6, 4) - 2.0
    a, b, agreement = shared_code(x, y, 4)
    assert a.shape == (4, 8) and b.shape == (4, 6)
    assert agreement[:3].min() > 0.9
    assert agreement[3] < 0.2
    left, right = (x - x.mean(0)) @ a.T, (y - y.mean(0)) @ b.T
    found = torch.corrcoef(torch.cat([left, right], 1).T)
    torch.testing.assert_close(found[:4, 4:], torch.diag(agreement), atol=0.02, rtol=0.0)
    torch.testing.assert_close(found[:4, :4], torch.eye(4), atol=0.02, rtol=0.0)
    torch.testing.assert_close(left.std(0)[:3], torch.ones(3), atol=0.05, rtol=0.0)


def test_quiet_directions_are_those_in_which_states_differ_least() -> None:
    spread = torch.tensor([3.0, 0.1, 2.0, 0.01, 5.0])
    turned = torch.linalg.qr(drawn(5, 5, 0)).Q
    states = drawn(3000, 5, 1) * spread @ turned + 7.0
    found = quiet_directions(states, 2)
    torch.testing.assert_close(found @ found.T, torch.eye(2))
    torch.testing.assert_close((found @ turned[[3, 1]].T).abs(), torch.eye(2), atol=0.02, rtol=0.0)


def test_a_token_is_said_through_far_fewer_numbers_than_there_are_tokens() -> None:
    tokens = drawn(300, 32, 0) * torch.linspace(0.7, 1.3, 300)[:, None]
    rows, states = tokens @ drawn(32, 80, 1), tokens @ drawn(32, 70, 2)
    code, answer = spoken_code(states, rows, 16)
    assert code.shape == (16, 70) and answer.shape == (80, 16)
    said = (states @ code.T @ answer.T @ rows.T).argmax(dim=-1)
    assert (said == torch.arange(300)).float().mean() > 0.95
    again = spoken_code(states, rows, 16)
    assert torch.equal(code, again[0]) and torch.equal(answer, again[1])


def test_the_slope_of_a_norm_is_its_weight() -> None:
    states, weight = drawn(50, 6, 0) * 7.0, drawn(1, 6, 1)
    normed = states / states.pow(2).mean(dim=-1, keepdim=True).sqrt() * weight
    torch.testing.assert_close(norm_slope(states, normed), weight[0])
