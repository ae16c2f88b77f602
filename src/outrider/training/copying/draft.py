"""How new heads of a draft model come to copy.

Those of the last layer but one read the tokens before, and pass them on; those of the last layer
find where the present tokens were the ones before, and say what stands there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from outrider.errors import OptionError
from outrider.targets.base import NORMED
from outrider.targets.features import FeatureTap, base_model, decoder_layers
from outrider.training.copying.codes import norm_slope, quiet_directions, shared_code
from outrider.training.copying.more_heads import Heads
from outrider.training.copying.new_heads import NewHeads, slow_places
from outrider.training.copying.practice import LOOKING, UNMATCHED, Practice, surprise
from outrider.training.copying.texts import CopyingBatch, CopyingTexts
from outrider.training.teacher import Teacher

OFFSETS = 2
"""Tokens before that are looked at, each by a head of its own."""

_EARLY_STEPS, _EARLY_RATE = 60, 5e-3
_STEPS, _RATE = 400, 3e-3
_PASSED_ON, _SAID = 0.1, 0.15  # sizes at first, as shares of the states they are added to
_SHARP = 10.0  # what the same token adds to an attention logit at first


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """What a draft model makes of texts, [B, T, ...] each."""

    before: Tensor
    """What attention reads in the last layer but one."""
    inputs: Tensor
    """What attention reads in the last layer."""
    residual: Tensor
    """What enters the last layer."""
    last: Tensor
    """What leaves it."""
    normed: Tensor
    """What the output layer reads."""


class DraftCopying:
    """The new heads of a draft model, and how they come to copy."""

    def __init__(
        self,
        draft: PreTrainedModel,
        old: Heads,
        teacher: Teacher,
        texts: CopyingTexts,
        *,
        autocast: bool,
    ) -> None:
        """`draft` has heads beyond the `old`, and two layers at least."""
        self._draft = draft
        self._base: Any = base_model(draft)
        layers = decoder_layers(draft)
        self._last = len(layers) - 1
        both = {place: layers[place] for place in (self._last - 1, self._last)}
        self._heads = NewHeads(draft, both, old)
        self._teacher = teacher
        self._texts = texts
        self._autocast = autocast
        self._tap = FeatureTap(draft, (self._last, self._last + 1, NORMED))
        self._attention: tuple[Tensor, ...] = ()

    def learn(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Give the heads what they copy with; nothing else in the model changes."""
        self._draft.set_attn_implementation("eager")  # others do not tell where they look
        Practice(_EARLY_STEPS, _EARLY_RATE, self._looking_back).take(self._heads, self._texts, say)
        self._pass_on()
        self._compare_and_say()
        Practice(_STEPS, _RATE, self._copying).take(self._heads, self._texts, say)

    def _see(self, asked: CopyingBatch) -> _Seen:
        inputs: list[Tensor] = []
        hooks = [
            self._heads.projection(layer, "q_proj").register_forward_pre_hook(
                lambda _, args: inputs.append(args[0])
            )
            for layer in (self._last - 1, self._last)
        ]
        kind = asked.batch.ids.device.type
        try:
            with (
                self._tap.on(),
                torch.autocast(kind, dtype=torch.bfloat16, enabled=self._autocast),
            ):
                found = self._base(
                    input_ids=asked.batch.ids, use_cache=False, output_attentions=True
                )
        finally:
            for hook in hooks:
                hook.remove()
        if found.attentions is None:
            kind = self._draft.config.model_type
            raise OptionError(f"draft models of the kind {kind} do not tell where they look")
        first = self._heads.old.queries
        self._attention = tuple(one[:, first:].float() for one in found.attentions[-2:])
        return _Seen(*inputs, *self._tap.states())

    def _looking_back(self, asked: CopyingBatch) -> Tensor:
        """Return how far the last layer but one is from looking at the tokens before."""
        self._see(asked)
        return self._looks_back(asked)

    def _looks_back(self, asked: CopyingBatch) -> Tensor:
        attention, _ = self._attention
        places = torch.arange(OFFSETS, attention.shape[-1], device=attention.device)
        real = asked.batch.real[:, OFFSETS:]
        looks = [attention[:, head, places, places - head - 1] for head in range(OFFSETS)]
        return torch.stack([surprise(one[real]) for one in looks]).mean()

    def _copying(self, asked: CopyingBatch) -> Tensor:
        """Return how far the heads are from copying, and the model from saying what it should."""
        seen = self._see(asked)
        _, attention = self._attention
        (rows, places), (alone, there) = asked.found, asked.lost
        looks = self._looks_back(asked)
        looks = looks + surprise(attention[rows, :, places, asked.sources[rows, places]])
        looks = looks + UNMATCHED * surprise(attention[alone, :, there, 0])
        logits = self._teacher.shaping(self._teacher.logits(seen.normed[asked.counts]))
        wanted = asked.following[asked.counts]
        said = functional.cross_entropy(logits.float(), wanted, reduction="sum")
        return said / max(1, len(wanted)) + LOOKING * looks

    @torch.no_grad()
    def _pass_on(self) -> None:
        """Let the last layer but one write the tokens before where little else is written."""
        seen, _ = self._sight()
        size, output = self._heads.old.size, self._heads.weight(self._last - 1, "o_proj")
        code, _, _ = shared_code(seen.before, seen.inputs, size)
        self._heads.put(self._last - 1, "v_proj", code)
        width = min(OFFSETS * size, len(output))
        scale = _PASSED_ON * seen.residual.norm(dim=-1).median() / width**0.5
        output.zero_()
        output[:, :width] = quiet_directions(seen.residual, width).T * scale

    @torch.no_grad()
    def _compare_and_say(self) -> None:
        """Let the last layer compare these with the present tokens, and say what it finds."""
        seen, columns = self._sight()
        size, layer = self._heads.old.size, self._last
        places = slow_places(getattr(self._base, "rotary_emb", None), size)
        key, query, _ = shared_code(seen.inputs[1:], seen.inputs[:-1], len(places))
        gain = (_SHARP * size**0.5 / len(places)) ** 0.5
        self._heads.put(layer, "k_proj", key * gain, places)
        self._heads.put(layer, "q_proj", query * gain, places)
        is_said = columns >= 0
        spoken = self._output_rows(seen)[columns[is_said]]
        inputs = seen.inputs[is_said]
        code, said, agreement = shared_code(inputs, spoken, size)
        self._heads.put(layer, "v_proj", code)
        answer = (said * agreement[:, None]).T
        scale = _SAID * seen.last.norm(dim=-1).median()
        answer *= scale / (inputs @ code.T @ answer.T).norm(dim=-1).median()
        output = self._heads.weight(layer, "o_proj")
        each = output.shape[1] // size
        output.copy_(torch.cat([answer / each] * each, dim=1))

    def _sight(self) -> tuple[_Seen, Tensor]:
        """Return what the model makes of made-up texts, row by row, and the tokens as columns."""
        width = self._draft.config.hidden_size
        found: list[_Seen] = []
        columns: list[Tensor] = []
        while sum(map(len, columns)) < 16 * width:
            asked = self._texts.made_up()
            seen = self._see(asked)
            parts = (getattr(seen, name) for name in _Seen.__slots__)
            rows = [part[:, OFFSETS:].flatten(0, 1).float() for part in parts]
            found.append(_Seen(*rows))
            columns.append(self._texts.columns[asked.batch.ids[:, OFFSETS:].flatten().cpu()])
        joined = [torch.cat([getattr(one, name) for one in found]) for name in _Seen.__slots__]
        return _Seen(*joined), torch.cat(columns).to(joined[0].device)

    def _output_rows(self, seen: _Seen) -> Tensor:
        """Return what each token that is drafted adds to its logit, as directions [D, H] of `last`.

        The last norm scales each of them by what it makes of it.
        """
        width = seen.last.shape[-1]
        basis = torch.eye(width, device=seen.last.device)
        rows = (self._teacher.logits(basis) - self._teacher.logits(basis * 0)).T
        return rows * norm_slope(seen.last, seen.normed)
