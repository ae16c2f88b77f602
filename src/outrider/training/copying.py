"""Attention heads that copy, given to a draft model before it is trained.

A text says again what it said: after words that were there before comes what came then. A deep
model has heads for that (Olsson et al. 2022, "induction heads"): some read the tokens before, and
later ones find where the present tokens were the ones before, and say what stands there. A few
layers do not come to it by themselves in what a draft model is trained with, so they are given it.
The directions in which tokens are passed on are written down in closed form, as canonical
correlations; where the heads look is learnt, on made-up texts as well, so that they copy what they
never saw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from outrider.checkpoints.base import Checkpoint
from outrider.errors import OptionError
from outrider.heads.config import DraftConfig
from outrider.heads.draft import own_tensors
from outrider.targets.base import NORMED
from outrider.targets.features import FeatureTap, base_model, decoder_layers
from outrider.training.base import Sample
from outrider.training.codes import quiet_directions, shared_code
from outrider.training.copying_texts import CopyingBatch, CopyingTexts
from outrider.training.draft import to_be_trained
from outrider.training.more_heads import Heads, NewHeads, with_more_heads
from outrider.training.teacher import Teacher

_OFFSETS = 2  # tokens before that are looked at, each by a head of its own
_EARLY_STEPS, _EARLY_RATE = 60, 5e-3
_STEPS, _RATE = 400, 3e-3
_WARM_UP, _COOLING = 15, 0.4  # steps; share of the steps
_LOOKING = 0.5  # weight of where heads look, beside what the model says
_UNMATCHED = 0.3  # weight of looking at the first token where there is nothing to copy
_PASSED_ON, _SAID = 0.1, 0.15  # sizes at first, as shares of the states they are added to
_SHARP = 10.0  # what the same token adds to an attention logit at first
_SLOW, _FAR = 0.5, 512  # radians that a place which compares tokens turns in so many tokens


def with_copying_heads(
    draft: Checkpoint,
    model: PreTrainedModel,
    teacher: Teacher,
    samples: Sequence[Sample],
    *,
    seed: int = 0,
    autocast: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Checkpoint:
    """Return a draft model that has new attention heads, which copy, and is the same otherwise.

    `teacher` has the output layer that it speaks with. Raises OptionError for a draft model of one
    layer, and one that cannot have more heads.
    """
    assert isinstance(draft.config, DraftConfig)
    if draft.config.num_layers < 2:
        raise OptionError("copying takes two layers; this draft model has one")
    wider = with_more_heads(draft, _OFFSETS, seed)
    assert isinstance(wider.config, DraftConfig)
    module = to_be_trained(wider, model)
    texts = CopyingTexts(samples, teacher, wider.config.vocab_size, seed)
    CopyingHeads(module, Heads.of(draft.config), teacher, texts, autocast=autocast).learn(say)
    return replace(wider, tensors=dict(wider.tensors) | own_tensors(module))


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


class CopyingHeads:
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
        self._last = len(decoder_layers(draft)) - 1
        self._heads = NewHeads(draft, old, (self._last - 1, self._last))
        self._teacher = teacher
        self._texts = texts
        self._autocast = autocast
        self._tap = FeatureTap(draft, (self._last, self._last + 1, NORMED))
        self._attention: tuple[Tensor, ...] = ()

    def learn(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Give the heads what they copy with; nothing else in the model changes."""
        self._draft.set_attn_implementation("eager")  # others do not tell where they look
        self._train(_EARLY_STEPS, _EARLY_RATE, self._looking_back, say)
        self._pass_on()
        self._compare_and_say()
        self._train(_STEPS, _RATE, self._copying, say)

    def _train(
        self,
        steps: int,
        rate: float,
        loss: Callable[[CopyingBatch], Tensor],
        say: Callable[[str], None],
    ) -> None:
        """Train the new heads alone, on made-up texts and real ones in turns."""
        parameters = self._heads.parameters
        optimizer = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.98), weight_decay=0.0)
        for step in range(steps):
            say(f"learning to copy: step {step + 1} of {steps}")
            found = loss(self._texts.real() if step % 2 else self._texts.made_up())
            self._draft.zero_grad()
            found.backward()  # type: ignore[no-untyped-call]
            self._heads.keep_gradients()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            share = min(1.0, (step + 1) / _WARM_UP, (1 - step / steps) / _COOLING)
            optimizer.param_groups[0]["lr"] = rate * share
            optimizer.step()

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
        places = torch.arange(_OFFSETS, attention.shape[-1], device=attention.device)
        real = asked.batch.real[:, _OFFSETS:]
        looks = [attention[:, head, places, places - head - 1] for head in range(_OFFSETS)]
        return torch.stack([_surprise(one[real]) for one in looks]).mean()

    def _copying(self, asked: CopyingBatch) -> Tensor:
        """Return how far the heads are from copying, and the model from saying what it should."""
        seen = self._see(asked)
        _, attention = self._attention
        (rows, places), (alone, there) = asked.found, asked.lost
        looks = self._looks_back(asked)
        looks = looks + _surprise(attention[rows, :, places, asked.sources[rows, places]])
        looks = looks + _UNMATCHED * _surprise(attention[alone, :, there, 0])
        logits = self._teacher.shaping(self._teacher.logits(seen.normed[asked.counts]))
        wanted = asked.following[asked.counts]
        said = functional.cross_entropy(logits.float(), wanted, reduction="sum")
        return said / max(1, len(wanted)) + _LOOKING * looks

    @torch.no_grad()
    def _pass_on(self) -> None:
        """Let the last layer but one write the tokens before where little else is written."""
        seen, _ = self._sight()
        size, output = self._heads.old.size, self._heads.weight(self._last - 1, "o_proj")
        code, _, _ = shared_code(seen.before, seen.inputs, size)
        self._heads.put(self._last - 1, "v_proj", code)
        width = min(_OFFSETS * size, len(output))
        scale = _PASSED_ON * seen.residual.norm(dim=-1).median() / width**0.5
        output.zero_()
        output[:, :width] = quiet_directions(seen.residual, width).T * scale

    @torch.no_grad()
    def _compare_and_say(self) -> None:
        """Let the last layer compare these with the present tokens, and say what it finds."""
        seen, columns = self._sight()
        size, layer = self._heads.old.size, self._last
        places = self._slow_places()
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
            rows = [part[:, _OFFSETS:].flatten(0, 1).float() for part in parts]
            found.append(_Seen(*rows))
            columns.append(self._texts.columns[asked.batch.ids[:, _OFFSETS:].flatten().cpu()])
        joined = [torch.cat([getattr(one, name) for one in found]) for name in _Seen.__slots__]
        return _Seen(*joined), torch.cat(columns).to(joined[0].device)

    def _output_rows(self, seen: _Seen) -> Tensor:
        """Return what each token that is drafted adds to its logit, as directions [D, H] of `last`.

        The last norm scales each of them by what it makes of it.
        """
        width = seen.last.shape[-1]
        basis = torch.eye(width, device=seen.last.device)
        rows = (self._teacher.logits(basis) - self._teacher.logits(basis * 0)).T
        state = seen.last / seen.last.pow(2).mean(dim=-1, keepdim=True).sqrt()
        return rows * (seen.normed * state).mean(dim=0) / state.pow(2).mean(dim=0)

    def _slow_places(self) -> list[int]:
        """Return the places of a head that rotary positions hardly turn: they compare from afar."""
        size = self._heads.old.size
        frequencies = getattr(getattr(self._base, "rotary_emb", None), "inv_freq", None)
        if frequencies is None:
            return list(range(size))
        pairs = len(frequencies)
        slow = sum(1 for one in frequencies.tolist() if one * _FAR < _SLOW)
        first = pairs - max(slow, -(-pairs // 4))
        return [*range(first, pairs), *range(pairs + first, size)]


def _surprise(shares: Tensor) -> Tensor:
    """Return the mean of -log of shares of attention; 0 where there is none."""
    return -shares.clamp_min(1e-20).log().mean() if shares.numel() else shares.sum()
