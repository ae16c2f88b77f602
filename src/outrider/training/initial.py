"""Where training begins: heads that take over from the target what they can."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.errors import OptionError
from outrider.heads.config import EagleConfig
from outrider.heads.eagle import EagleHead
from outrider.targets.base import NORMED
from outrider.targets.features import base_model
from outrider.training.vocabulary import DraftVocabulary

_SPREAD = 0.02


def default_eagle_config(
    model: PreTrainedModel, draft_vocab_size: int | None = None
) -> EagleConfig:
    """Return the configuration of an EAGLE-3 head that is shaped like one layer of the target.

    It drafts all ids where it is not said how many.
    """
    config = model.config.get_text_config(decoder=True)
    heads = config.num_attention_heads
    depth = config.num_hidden_layers
    return EagleConfig(
        version=3,
        hidden_size=config.hidden_size,
        target_hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_attention_heads=heads,
        num_key_value_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        vocab_size=config.vocab_size,
        draft_vocab_size=draft_vocab_size or config.vocab_size,
        max_position_embeddings=config.max_position_embeddings,
        feature_layers=(2, depth // 2, depth - 3),
        owns_embeddings=False,
        owns_head=True,
        rms_norm_eps=getattr(config, "rms_norm_eps", 1e-6),
        rope_parameters=dict(getattr(config, "rope_parameters", None) or {}),
    )


@torch.no_grad()
def initial_eagle_head(
    config: EagleConfig, model: PreTrainedModel, maps: dict[str, Tensor], seed: int = 0
) -> EagleHead:
    """Return a head to be trained, in float32.

    `maps` are `d2t` and `t2d`, empty where all ids are drafted. Its output layer and last norm are
    the target's own; the rest is random.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = EagleHead(config).float()
        for name, parameter in head.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, _SPREAD)
            elif name.endswith("bias"):
                parameter.zero_()
    if head.d2t is not None and head.t2d is not None:
        head.d2t.copy_(maps["d2t"])
        head.t2d.copy_(maps["t2d"])
    if config.hidden_size == config.target_hidden_size:
        _take_over(head, model)
    return head


def _take_over(head: EagleHead, model: PreTrainedModel) -> None:
    """Give a head the output layer and the last norm of a target that is as wide."""
    get_output: Any = model.get_output_embeddings  # untyped there
    weight = get_output().weight.float()
    ids = head.target_ids
    if head.lm_head is not None:
        head.lm_head.weight.copy_(weight if ids is None else weight[ids])
    tensors = [getattr(child, "weight", None) for child in base_model(model).children()]
    norms = [one for one in tensors if isinstance(one, Tensor) and one.dim() == 1]
    if head.norm is not None and len(norms) == 1:
        head.norm.weight.copy_(norms[0])


@torch.no_grad()
def redrafted(head: EagleHead, model: PreTrainedModel, words: DraftVocabulary) -> EagleHead:
    """Return a head that drafts the ids of `words` instead.

    Of an id that it did not draft so far it has the target's own row, where it is as wide, else a
    random one. Raises OptionError for a head that speaks with the target's output layer.
    """
    if head.lm_head is None:
        raise OptionError("the head has no output layer of its own: it drafts what the target says")
    config = replace(head.config, draft_vocab_size=len(words.ids))
    other = EagleHead(config).float()
    assert other.lm_head is not None
    rows = other.lm_head.weight.normal_(0.0, _SPREAD)
    get_output: Any = model.get_output_embeddings  # untyped there
    if head.config.hidden_size == head.config.target_hidden_size:
        rows.copy_(get_output().weight[words.ids])
    known = head.target_ids
    known = torch.arange(head.config.vocab_size) if known is None else known
    kept = torch.isin(known, words.ids)  # in whatever order a head has them
    rows[torch.searchsorted(words.ids, known[kept])] = head.lm_head.weight[kept].float()
    own = {"lm_head.weight": rows, "d2t": words.d2t, "t2d": words.t2d}
    state = head.state_dict() | own
    other.load_state_dict({name: state[name] for name in other.state_dict()})
    return other


def eagle_1_config(model: PreTrainedModel) -> EagleConfig:
    """Return the configuration of an EAGLE-1 head that is shaped like one layer of the target."""
    return replace(
        default_eagle_config(model),
        version=1,
        feature_layers=(NORMED,),
        owns_head=False,
        fc_bias=True,
    )
