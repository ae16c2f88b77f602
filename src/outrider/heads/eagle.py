"""EAGLE heads: a small decoder that goes on from the target's hidden states.

EAGLE-1 and -2 (Li et al., 2401.15077, 2406.16858) share their weights; EAGLE-3 (Li et al.,
2503.01840) mixes the states of several layers, and may draft a part of the vocabulary. A row is a
pair: the hidden state at a position with the token that follows it. A request's first pair, the
state of token 0 with token 1, has position 0. To draft, the state a row gives goes on as
the hidden state of the next, beside the token drafted from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from outrider.errors import LoadError, OptionError
from outrider.heads.config import EagleConfig
from outrider.heads.fill import fill
from outrider.heads.layers import Attend, FusedLayer, Layer, RMSNorm
from outrider.heads.rotary import Rotary


@dataclass(frozen=True, slots=True)
class EagleOutput:
    """What a pass gives for each row: `state` [R, H] to go on from, `output` [R, H] for logits."""

    state: Tensor
    output: Tensor


class EagleHead(nn.Module):
    """An EAGLE head of any version, over rows of any number of requests side by side.

    Raises UnsupportedModelError for a configuration it cannot compute.
    """

    d2t: Tensor | None
    t2d: Tensor | None

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        self.config = config
        width, vocab = config.hidden_size, config.vocab_size
        self.embed_tokens = nn.Embedding(vocab, width) if config.owns_embeddings else None
        self._build_mixing(config)
        first = Layer(config, 0, normed=False) if config.version == 1 else FusedLayer(config)
        rest = (Layer(config, layer) for layer in range(1, config.num_layers))
        self.layers = nn.ModuleList([first, *rest])
        self.norm = RMSNorm(width, config.rms_norm_eps) if config.version == 3 else None
        drafted = config.draft_vocab_size
        self.lm_head = nn.Linear(width, drafted, bias=False) if config.owns_head else None
        reduced = config.is_reduced
        self.register_buffer("d2t", torch.zeros(drafted, dtype=torch.long) if reduced else None)
        self.register_buffer("t2d", torch.zeros(vocab, dtype=torch.bool) if reduced else None)
        self.rotary = Rotary(config)

    def _build_mixing(self, config: EagleConfig) -> None:
        """Build what turns EAGLE-3's features, or EAGLE-1's pairs, into one hidden state."""
        one, epsilon = config.target_hidden_size, config.rms_norm_eps
        count = config.num_features
        width = 2 * config.hidden_size if config.version == 1 else count * one
        self.fc = nn.Linear(width, config.hidden_size, bias=config.fc_bias)
        self.input_norm = RMSNorm(width, epsilon) if config.norm_before_fc else None
        norms = [RMSNorm(one, epsilon) for _ in range(count)] if config.fc_norm else None
        self.fc_norm = nn.ModuleList(norms) if norms else None

    @classmethod
    def load(cls, config: EagleConfig, tensors: Mapping[str, Tensor]) -> EagleHead:
        """Build a head from its tensors, which it keeps in their type; all of them are needed.

        Raises LoadError for a tensor that is missing, unknown or of another shape, and for maps
        between the vocabularies that contradict each other.
        """
        with torch.device("meta"):
            head = cls(config)
        fill(head, tensors, f"the EAGLE-{config.version} head")
        head._check_maps()
        return head

    @property
    def dtype(self) -> torch.dtype:
        """The type the head computes in."""
        return next(self.layers.parameters()).dtype

    @property
    def target_ids(self) -> Tensor | None:
        """The target's token id of each drafted one, [D]; None where they are the same.

        The tensor `d2t` holds how far up the target's id is, not the id.
        """
        if self.d2t is None:
            return None
        return torch.arange(len(self.d2t), device=self.d2t.device) + self.d2t

    def embed(self, tokens: Tensor, table: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return the embeddings [R, H] of the target's token ids [R].

        `table`, the target's embeddings, serves a head that has none of its own; without either an
        OptionError is raised.
        """
        lookup = table if self.embed_tokens is None else self.embed_tokens
        if lookup is None:
            raise OptionError("the EAGLE head has no embeddings: the target's must be given")
        embeddings: Tensor = lookup(tokens)
        return embeddings

    def fuse(self, features: Tensor) -> Tensor:
        """Return the hidden states [R, H] that the target's features stand for.

        EAGLE-3 features are [R, n * H_target], layer by layer; an EAGLE-1 feature is the hidden
        state itself, [R, H].
        """
        if self.config.version == 1:
            return features
        if self.input_norm is not None:
            features = self.input_norm(features)
        if self.fc_norm is not None:
            parts = features.chunk(len(self.fc_norm), dim=-1)
            normed = [norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)]
            features = torch.cat(normed, dim=-1)
        fused: Tensor = self.fc(features)
        return fused

    def forward(
        self, embeddings: Tensor, hidden: Tensor, positions: Tensor, attend: Attend
    ) -> EagleOutput:
        """Run the decoder over the pairs of `embeddings` [R, H] and `hidden` [R, H].

        `hidden` is what `fuse` gave, or the `state` of the row before; `positions` is [R]. Both
        tensors are of the head's type.
        """
        rotation = self.rotary(positions, hidden)
        if self.config.version == 1:
            pairs = self.fc(torch.cat((embeddings, hidden), dim=-1))
            hidden = self.layers[0](pairs, rotation, attend)
        else:
            hidden = self.layers[0](embeddings, hidden, rotation, attend)
        for layer in self.layers[1:]:
            hidden = layer(hidden, rotation, attend)
        output = hidden if self.norm is None else self.norm(hidden)
        return EagleOutput(output if self.config.norm_output else hidden, output)

    def logits(self, output: Tensor, head: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return the logits [R, D] of the draft vocabulary after each row.

        `head`, the target's output layer, serves a head that has none of its own; without either
        an OptionError is raised.
        """
        layer = head if self.lm_head is None else self.lm_head
        if layer is None:
            raise OptionError("the EAGLE head has no output layer: the target's must be given")
        logits: Tensor = layer(output)
        return logits

    def _check_maps(self) -> None:
        """Refuse maps between the vocabularies that do not say the same."""
        ids = self.target_ids
        if ids is None or self.t2d is None:
            return
        marked = self.t2d.nonzero().flatten()
        if len(marked) != len(ids):
            raise LoadError(f"t2d marks {len(marked)} token ids, but the head drafts {len(ids)}")
        wrong = (ids.sort().values != marked).nonzero().flatten()
        if len(wrong):
            raise LoadError(f"t2d and d2t disagree about token id {int(marked[wrong[0]])}")
