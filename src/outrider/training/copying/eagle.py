"""How new heads of an EAGLE-3 head come to copy.

One layer is enough: a row is the features of a token beside the embedding of the next, so that a
place to copy from shows what it follows, and what is to be said, at once. A new head looks from
the present token, and the features of the one before, for features of the same; it says the token
whose embedding stands beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from outrider.errors import OptionError
from outrider.heads.eagle import EagleHead, EagleOutput
from outrider.heads.layers import FusedLayer
from outrider.training.base import shifted
from outrider.training.copying.codes import norm_slope, shared_code, spoken_code
from outrider.training.copying.more_heads import Heads
from outrider.training.copying.new_heads import NewHeads, slow_places
from outrider.training.copying.practice import LOOKING, UNMATCHED, Practice, surprise
from outrider.training.copying.recurrence import NOWHERE
from outrider.training.copying.texts import CopyingBatch, CopyingTexts
from outrider.training.teacher import Teacher
from outrider.training.unroll import UnrolledAttention

_STEPS, _RATE = 160, 2e-3
_DRAFTED = 3  # tokens that each row drafts
_FADING = 0.8  # a step's weight next to that of the step before
_SAID = 0.4  # size of what is said at first, as a share of the states it is added to
_SAME, _SAME_BEFORE = 12.0, 6.0  # what the same token, and the same before, add to a logit at first
_BEFORE = 0.4  # share of the places that compare the tokens before
_ROWS = 16  # copied tokens that codes are told from, for each number of a state


class WatchedAttention(UnrolledAttention):
    """Attention that remembers where the last heads of the first layer look."""

    def __init__(self, batch: int, length: int, first: int) -> None:
        """Of the heads those from the `first` on are watched."""
        super().__init__(batch, length)
        self._first = first
        self.looks: list[Tensor] = []
        """Shares [B, heads, T, T] of the true rows, one tensor a step of each layer's."""

    def _weights(self, query: Tensor, keys: list[Tensor]) -> Tensor:
        weights = super()._weights(query, keys)
        self.looks.append(weights[:, self._first :, :, : keys[0].shape[2]])
        return weights


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """What attention reads of made-up texts, and what the head makes of them, row by row."""

    tokens: Tensor
    """[N, H] of the embeddings of tokens."""
    features: Tensor
    """[N, H] of the target's states there."""
    sources: Tensor
    """[M, H] of the target's states where a text went on before."""
    goers: Tensor
    """[M, H] of its states of the token before the one that goes on so."""
    state: Tensor
    """[N, H]: what leaves the last layer."""
    output: Tensor
    """[N, H]: what the output layer reads."""


class EagleCopying:
    """The new heads of an EAGLE-3 head, and how they come to copy."""

    def __init__(
        self, head: EagleHead, old: Heads, teacher: Teacher, texts: CopyingTexts, *, autocast: bool
    ) -> None:
        """`head` has attention heads beyond the `old`. Raises OptionError for one of EAGLE-1, and
        one without an output layer of its own.
        """
        layer = head.layers[0]
        if not isinstance(layer, FusedLayer) or head.lm_head is None:
            raise OptionError("copying is for EAGLE-3 heads with an output layer of their own")
        self._head = head
        self._layer = layer
        self._output = head.lm_head
        self._heads = NewHeads(head, {0: layer}, old)
        self._teacher = teacher
        self._embed: Any = teacher.model.get_input_embeddings()
        self._texts = texts
        self._autocast = autocast

    def learn(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Give the heads what they copy with; nothing else in the EAGLE head changes."""
        say("looking at what is to be compared")
        self._compare_and_say()
        Practice(_STEPS, _RATE, self._copying).take(self._heads, self._texts, say)

    def _draft(
        self, asked: CopyingBatch, steps: int
    ) -> tuple[Tensor, list[EagleOutput], list[Tensor]]:
        """Return the hidden states that are drafted from, what each step gave, and its looks."""
        ids = asked.batch.ids
        size, length = ids.shape
        places = torch.arange(length, device=ids.device).repeat(size)
        attention = WatchedAttention(size, length, self._heads.old.queries)
        outputs: list[EagleOutput] = []
        with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=self._autocast):
            features = self._teacher.teach(asked.batch).features.flatten(0, 1)
            fused = hidden = self._head.fuse(features.to(self._head.dtype))
            for step in range(steps):
                embeddings = self._embedded(shifted(ids, step + 1).flatten())
                outputs.append(self._head(embeddings, hidden, places + step, attention))
                hidden = outputs[-1].state
        layers = len(self._head.layers)
        return fused, outputs, attention.looks[::layers]

    def _embedded(self, tokens: Tensor) -> Tensor:
        return self._head.embed(tokens, self._embed).to(self._head.dtype)

    def _copying(self, asked: CopyingBatch) -> Tensor:
        """Return how far the heads are from copying, and the head from saying what it should."""
        _, outputs, looks = self._draft(asked, _DRAFTED)
        weights = [_FADING**step for step in range(_DRAFTED)]
        losses = [
            self._said(asked, output.output, step) + LOOKING * _looking(asked, look, step)
            for step, (output, look) in enumerate(zip(outputs, looks, strict=True))
        ]
        parts = [weight * loss for weight, loss in zip(weights, losses, strict=True)]
        return torch.stack(parts).sum() / sum(weights)

    def _said(self, asked: CopyingBatch, output: Tensor, step: int) -> Tensor:
        rows = shifted(asked.counts, step + 1).flatten()
        wanted = shifted(asked.following, step + 1).flatten()[rows]
        logits = self._head.logits(output[rows].to(self._head.dtype)).float()
        said = functional.cross_entropy(logits, wanted, reduction="sum")
        return said / max(1, len(wanted))

    @torch.no_grad()
    def _compare_and_say(self) -> None:
        """Let the heads compare what is the same where a text went on, and say what came then."""
        seen = self._sight()
        self._compare(seen)
        self._say(seen)

    def _compare(self, seen: _Seen) -> None:
        size, width = self._heads.old.size, seen.features.shape[1]
        places = slow_places(self._head.rotary.embedding, size)
        cut = round(_BEFORE * len(places))
        before, same = places[:cut], places[cut:]  # the slowest compare what must be the same
        parts = (
            (same, shared_code(seen.tokens, seen.features, len(same)), _SAME, 0),
            (before, shared_code(seen.goers, seen.sources, len(before)), _SAME_BEFORE, width),
        )
        query = seen.features.new_zeros(len(places), 2 * width)
        key = torch.zeros_like(query)
        begin = 0
        for where, (asking, telling, _), sharp, first in parts:
            rows = slice(begin, begin := begin + len(where))
            gain = (sharp * size**0.5 / len(where)) ** 0.5
            query[rows, first : first + width] = asking * gain
            key[rows, width:] = telling * gain
        self._heads.put(0, "q_proj", query, same + before)
        self._heads.put(0, "k_proj", key, same + before)

    def _say(self, seen: _Seen) -> None:
        """Let the heads say the token whose embedding is where they look."""
        size, width = self._heads.old.size, seen.features.shape[1]
        ids = self._head.target_ids
        if ids is None:
            ids = torch.arange(self._head.config.vocab_size, device=seen.state.device)
        embeddings = self._layer.input_layernorm(self._embedded(ids)).float()
        code, answer = spoken_code(embeddings, self._output_rows(seen), size)
        self._heads.put(0, "v_proj", functional.pad(code, (0, width)))
        scale = _SAID * seen.state.norm(dim=-1).median()
        answer = answer * (scale / (embeddings @ code.T @ answer.T).norm(dim=-1).median())
        output = self._heads.weight(0, "o_proj")
        each = output.shape[1] // size
        output.copy_(torch.cat([answer / each] * each, dim=1))

    def _output_rows(self, seen: _Seen) -> Tensor:
        """Return what each drafted token adds to its logit, as directions [D, H] of the state."""
        return self._output.weight * norm_slope(seen.state, seen.output)

    def _sight(self) -> _Seen:
        """Return what is seen of so many made-up texts that codes can be told."""
        found: list[_Seen] = []
        least = _ROWS * self._head.config.hidden_size
        while sum(len(one.sources) for one in found) < least:
            found.append(self._see(self._texts.made_up()))
        joined = [torch.cat([getattr(one, name) for one in found]) for name in _Seen.__slots__]
        return _Seen(*joined)

    def _see(self, asked: CopyingBatch) -> _Seen:
        fused, outputs, _ = self._draft(asked, 1)
        ids = asked.batch.ids
        tokens = self._layer.input_layernorm(self._embedded(ids.flatten())).float()
        features = self._layer.hidden_norm(fused).float()
        rows, places = asked.found
        rows, places = rows[places > 0], places[places > 0]
        from_, length = asked.sources[rows, places], ids.shape[1]
        real = asked.batch.real.flatten()
        real[::length] = False  # every text begins alike
        return _Seen(
            tokens=tokens[real],
            features=features[real],
            sources=features[rows * length + from_ - 1],
            goers=features[rows * length + places - 1],
            state=outputs[0].state.float()[real],
            output=outputs[0].output.float()[real],
        )


def _looking(asked: CopyingBatch, looks: Tensor, step: int) -> Tensor:
    """Return how far heads [B, heads, T, T] are from looking where there is something to copy."""
    places = torch.arange(looks.shape[-1], device=looks.device)
    sources = shifted(asked.sources - NOWHERE, step + 1) + NOWHERE
    real = shifted(asked.batch.real, step + 1)
    # Of what a draft made up itself there is no true row to look at.
    rows, there = (real & (sources > 0) & (sources - 1 <= places)).nonzero(as_tuple=True)
    alone, lost = (real & (sources == NOWHERE)).nonzero(as_tuple=True)
    found = surprise(looks[rows, :, there, sources[rows, there] - 1])
    return found + UNMATCHED * surprise(looks[alone, :, lost, 0])
