"""The tensors a head must have, exactly: what is missing, foreign or misshapen is an error.

EAGLE: `embed_tokens.weight`, `fc.weight`, `fc.bias`, `layers.{i}...` as a Llama layer has them,
`norm.weight`, `lm_head.weight`, `input_norm.weight`, `fc_norm.{i}.weight`, and `d2t`, `t2d` where
the head drafts some token ids only: draft id i is the target's i + d2t[i], and t2d marks those ids.
Medusa: `heads.{k}.blocks.{j}.weight`, `heads.{k}.blocks.{j}.bias`, `heads.{k}.output.weight`.
Draft model: what Transformers calls its weights, all but those of embeddings and output layer, and
`token_ids` where it drafts some token ids only: those, in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from outrider.checkpoints.base import HeadConfig
from outrider.errors import LoadError
from outrider.heads.config import DraftConfig, EagleConfig, MedusaConfig

if TYPE_CHECKING:
    from torch import Tensor

    from outrider.checkpoints.base import Tensors

Shapes: TypeAlias = dict[str, tuple[int, ...]]

_MAPS = ("d2t", "t2d")


def expected_shapes(config: HeadConfig) -> Shapes:
    """Return every tensor that a head of this configuration has, and its shape.

    Raises OptionError for a draft model that Transformers cannot build.
    """
    if isinstance(config, DraftConfig):
        return _draft_shapes(config)
    if isinstance(config, MedusaConfig):
        return _medusa_shapes(config)
    shapes = _eagle_1_shapes(config) if config.version == 1 else _eagle_3_shapes(config)
    if config.owns_embeddings:
        shapes["embed_tokens.weight"] = (config.vocab_size, config.hidden_size)
    if config.owns_head:
        shapes["lm_head.weight"] = (config.draft_vocab_size, config.hidden_size)
    if config.is_reduced:
        shapes |= {"d2t": (config.draft_vocab_size,), "t2d": (config.vocab_size,)}
    return shapes


def require_tensors(config: HeadConfig, tensors: Tensors, name: str) -> None:
    """Raise LoadError, naming the tensor, unless they are those of the configuration."""
    wanted = expected_shapes(config)
    for tensor in sorted(wanted.keys() - tensors.keys()):
        raise LoadError(f"cannot load {name}: its weights lack the tensor {tensor}")
    for tensor in sorted(tensors.keys() - wanted.keys()):
        raise LoadError(f"cannot load {name}: the tensor {tensor} is no part of such a head")
    for tensor, shape in wanted.items():
        _require_shape(name, tensor, tensors[tensor], shape)
    if isinstance(config, EagleConfig) and config.is_reduced:
        _require_maps(config, tensors["d2t"], tensors["t2d"], name)
    if isinstance(config, DraftConfig) and config.is_reduced:
        _require_token_ids(config, tensors["token_ids"], name)


def without_needless_maps(tensors: Tensors, vocab_size: int, draft_vocab_size: int) -> Tensors:
    """Drop vocabulary maps that map every id to itself, which some writers leave in the file."""
    if vocab_size != draft_vocab_size or any(one not in tensors for one in _MAPS):
        return tensors
    if bool(tensors["d2t"].any()) or not bool(tensors["t2d"].all()):
        return tensors
    return {name: tensor for name, tensor in tensors.items() if name not in _MAPS}


def _require_shape(name: str, tensor: str, found: Tensor, shape: tuple[int, ...]) -> None:
    import torch

    if tuple(found.shape) != shape:
        raise LoadError(
            f"cannot load {name}: tensor {tensor} has shape {list(found.shape)}, "
            f"but its configuration asks for {list(shape)}"
        )
    form = str(found.dtype).removeprefix("torch.")
    whole = {"d2t": torch.int64, "t2d": torch.bool, "token_ids": torch.int64}
    wanted = whole.get(tensor)
    if wanted is None and not found.dtype.is_floating_point:
        raise LoadError(f"cannot load {name}: tensor {tensor} is {form}, not floating point")
    if wanted not in (None, found.dtype):
        needed = str(wanted).removeprefix("torch.")
        raise LoadError(f"cannot load {name}: tensor {tensor} is {form}, not {needed}")


def _require_maps(config: EagleConfig, d2t: Tensor, t2d: Tensor, name: str) -> None:
    """Check that the two maps say the same: one target id for each draft id, and no other."""
    import torch

    size = config.draft_vocab_size
    marked = int(t2d.sum())
    if marked != size:
        raise LoadError(
            f"cannot load {name}: t2d marks {marked} token ids, but the head drafts {size}"
        )
    ids = torch.arange(size, device=d2t.device) + d2t
    if int(ids.min()) < 0 or int(ids.max()) >= config.vocab_size:
        raise LoadError(
            f"cannot load {name}: d2t leads to token ids {int(ids.min())} to {int(ids.max())}, "
            f"but the target has {config.vocab_size}; it must hold offsets (target id - draft id)"
        )
    wrong = torch.nonzero(~t2d[ids])
    if wrong.numel():
        draft = int(wrong[0])
        raise LoadError(
            f"cannot load {name}: d2t leads draft id {draft} to {int(ids[draft])}, which t2d does "
            "not mark; it must hold offsets (target id - draft id)"
        )
    if len(set(ids.tolist())) != size:
        raise LoadError(f"cannot load {name}: d2t leads two draft ids to one token id")


def _require_token_ids(config: DraftConfig, ids: Tensor, name: str) -> None:
    """Check that they rise, so that none occurs twice, and that the target has them."""
    if int(ids[0]) < 0 or int(ids[-1]) >= config.vocab_size or bool((ids.diff() <= 0).any()):
        raise LoadError(
            f"cannot load {name}: token_ids must rise, within 0 to {config.vocab_size - 1}"
        )


def _draft_shapes(config: DraftConfig) -> Shapes:
    from outrider.heads.draft import TOKEN_IDS, own_shapes

    shapes = own_shapes(config)
    return shapes | ({TOKEN_IDS: (config.draft_vocab_size,)} if config.is_reduced else {})


def _eagle_1_shapes(config: EagleConfig) -> Shapes:
    hidden = config.hidden_size
    shapes: Shapes = {"fc.weight": (hidden, 2 * hidden)}
    if config.fc_bias:
        shapes["fc.bias"] = (hidden,)
    for layer in range(config.num_layers):
        # What enters the first layer comes from `fc` and is not normed.
        norms = ["post_attention_layernorm"] + ["input_layernorm"] * (layer > 0)
        shapes |= _layer_shapes(config, layer, hidden, norms)
    return shapes


def _eagle_3_shapes(config: EagleConfig) -> Shapes:
    hidden, count = config.hidden_size, config.num_features
    features = count * config.target_hidden_size
    shapes: Shapes = {"fc.weight": (hidden, features), "norm.weight": (hidden,)}
    if config.norm_before_fc:
        shapes["input_norm.weight"] = (features,)
    if config.fc_norm:
        shapes |= {f"fc_norm.{one}.weight": (config.target_hidden_size,) for one in range(count)}
    for layer in range(config.num_layers):
        # The first layer attends over embedding and hidden state side by side, each normed.
        norms = ["input_layernorm", "post_attention_layernorm"] + ["hidden_norm"] * (layer == 0)
        shapes |= _layer_shapes(config, layer, hidden * (2 if layer == 0 else 1), norms)
    return shapes


def _layer_shapes(config: EagleConfig, layer: int, inputs: int, norms: list[str]) -> Shapes:
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    attention = {
        "q_proj": (queries, inputs),
        "k_proj": (keys, inputs),
        "v_proj": (keys, inputs),
        "o_proj": (hidden, queries),
    }
    mlp = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    shapes: Shapes = {f"layers.{layer}.{norm}.weight": (hidden,) for norm in norms}
    for part, linears, has_bias in (
        ("self_attn", attention, config.attention_bias),
        ("mlp", mlp, config.mlp_bias),
    ):
        for linear, shape in linears.items():
            shapes[f"layers.{layer}.{part}.{linear}.weight"] = shape
            if has_bias:
                shapes[f"layers.{layer}.{part}.{linear}.bias"] = shape[:1]
    return shapes


def _medusa_shapes(config: MedusaConfig) -> Shapes:
    hidden = config.hidden_size
    shapes: Shapes = {}
    for head in range(config.num_heads):
        for block in range(config.num_layers):
            shapes[f"heads.{head}.blocks.{block}.weight"] = (hidden, hidden)
            shapes[f"heads.{head}.blocks.{block}.bias"] = (hidden,)
        if config.owns_output:
            shapes[f"heads.{head}.output.weight"] = (config.vocab_size, hidden)
    return shapes
