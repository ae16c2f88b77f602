"""Draft logits equal those of the public implementations; `golden/README.md` tells how they ran."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from outrider.heads.config import EagleConfig
from outrider.heads.eagle import EagleHead
from outrider.heads.medusa import MedusaHeads
from support.attending import CausalAttend
from support.golden import EAGLE, MEDUSA, SPECULATORS
from support.seeded import eagle_tensors, medusa_tensors, normal, stream, weight

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def assert_equal_logits(ours: Sequence[Tensor] | Tensor, theirs: Any) -> None:
    stacked = ours if isinstance(ours, Tensor) else torch.stack(list(ours))
    assert stacked.dtype == torch.float32
    assert_close(stacked, torch.tensor(theirs), rtol=0, atol=1e-5)


class Drafting:
    """One request of the goldens: its text, its features, and an EAGLE head that drafts for it."""

    def __init__(self, config: EagleConfig) -> None:
        self.head = EagleHead.load(config, eagle_tensors(config))
        self.attend = CausalAttend()
        width = config.num_features * config.target_hidden_size
        self.features = normal("features", 9, width)
        self.tokens = torch.from_numpy(stream("tokens").randint(config.vocab_size, size=10))
        self.output_layer = target_output(config.vocab_size, config.hidden_size)

    def read(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """Run the pairs start to end of the text; return states and logits of them all."""
        hidden = self.head.fuse(self.features[start:end])
        return self.step(self.tokens[start + 1 : end + 1], hidden, torch.arange(start, end))

    def step(self, tokens: Tensor, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            embeddings = self.head.embed(tokens)
            output = self.head(embeddings, hidden, positions, self.attend)
            return output.state, self.head.logits(output.output, self.output_layer)

    def favourite(self, logits: Tensor) -> Tensor:
        ids = self.head.target_ids
        best = logits.argmax(dim=-1)
        return best if ids is None else ids[best]


def target_output(vocab: int, width: int) -> Callable[[Tensor], Tensor]:
    table = weight("output.weight", (vocab, width))
    return lambda rows: functional.linear(rows, table)


@pytest.mark.parametrize("name", EAGLE)
def test_chains_are_drafted_as_the_authors_of_eagle_draft_them(name: str) -> None:
    request = Drafting(EAGLE[name])
    start = 0
    for pairs, expected in zip((5, 8), golden("eagle")[name], strict=True):
        states, rows = request.read(start, pairs)
        state, logits, drafted = states[-1:], [rows[-1]], []
        for depth in range(3):
            token = request.favourite(logits[-1][None])
            drafted.append(int(token))
            state, rows = request.step(token, state, torch.tensor([pairs + depth]))
            logits.append(rows[0])
        assert drafted == expected["drafted"]
        assert_equal_logits(logits, expected["logits"])
        request.attend.keep(pairs)
        start = pairs


@pytest.mark.parametrize("name", ["eagle1", "eagle3"])
def test_trees_are_drafted_as_the_authors_of_eagle_draft_them(name: str) -> None:
    request = Drafting(EAGLE[name])
    expected = golden("eagle_tree")[name]
    states, logits = request.read(0, 5)
    assert_equal_logits(logits[-1:], expected["logits"][0])
    states, tree = states[-1:], torch.zeros(1, 0, dtype=torch.bool)
    for depth, (tokens, parents) in enumerate(
        zip(expected["drafted"], expected["parents"], strict=True)
    ):
        tree = torch.cat((tree[parents], torch.eye(len(tokens), dtype=torch.bool)), dim=1)
        request.attend.tree = tree
        positions = torch.full((len(tokens),), 5 + depth)
        states, logits = request.step(torch.tensor(tokens), states[parents], positions)
        assert_equal_logits(logits, expected["logits"][depth + 1])


@pytest.mark.parametrize("name", SPECULATORS)
def test_logits_are_those_speculators_trains_with_its_flags(name: str) -> None:
    request = Drafting(SPECULATORS[name])
    prefix, *steps = golden("speculators")[name]
    states, logits = request.read(0, 4)
    assert_equal_logits(logits, prefix)
    state = states[-1:]
    for depth, expected in enumerate(steps):
        token = request.tokens[5 + depth, None]
        state, logits = request.step(token, state, torch.tensor([4 + depth]))
        assert_equal_logits(logits, expected)


@pytest.mark.parametrize("name", MEDUSA)
def test_logits_are_those_of_the_authors_of_medusa(name: str) -> None:
    config = MEDUSA[name]
    tensors = medusa_tensors(config)
    for head in range(config.num_heads):  # their residual blocks of a head are one and the same
        for kind in ("weight", "bias"):
            first = tensors[f"heads.{head}.blocks.0.{kind}"]
            for block in range(1, config.num_layers):
                tensors[f"heads.{head}.blocks.{block}.{kind}"] = first
    heads = MedusaHeads.load(config, tensors)
    output_layer = target_output(config.vocab_size, config.hidden_size)
    with torch.no_grad():
        logits = heads(normal("features", 4, config.hidden_size), output_layer)
    assert_equal_logits(logits, golden("medusa")[name])
