"""Draft models that share a target's embeddings and output layer: the layers between are their own.

They are ordinary Transformers models, so that whatever drives a target drives them. A reduced draft
vocabulary makes the output layer smaller: it has the rows of the token ids that are drafted, and no
others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.initialization import no_init_weights

from outrider.errors import LoadError, OptionError, UnsupportedModelError
from outrider.heads.config import DraftConfig
from outrider.targets.int8 import Int8Linear
from outrider.targets.quiet import quiet_transformers
from outrider.targets.skeleton import build_skeleton

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

TOKEN_IDS = "token_ids"
"""The tensor [D] of a reduced draft vocabulary: the target's ids that are drafted, in order."""

# These say where a configuration came from, or how it is run and kept, not what the model is.
_INCIDENTAL = frozenset(
    {"transformers_version", "architectures", "auto_map", "dtype", "torch_dtype", "id2label"}
    | {"label2id", "problem_type", "return_dict", "output_attentions", "output_hidden_states"}
    | {"quantization_config"}
)


def describe_draft(model: PreTrainedConfig, draft_vocab_size: int) -> DraftConfig:
    """Return the configuration of a draft model from that of a Transformers model like it."""
    values = {
        name: one
        for name, one in model.to_dict().items()
        if name not in _INCIDENTAL and not name.startswith("_")
    }
    return DraftConfig(
        architecture=values,
        num_layers=model.num_hidden_layers,
        hidden_size=model.hidden_size,
        vocab_size=model.vocab_size,
        draft_vocab_size=draft_vocab_size,
    )


def transformers_config(config: DraftConfig) -> PreTrainedConfig:
    """Return a draft model's configuration as Transformers has it.

    Raises OptionError for one that Transformers does not know, or whose sizes are others.
    """
    try:
        with quiet_transformers():
            found: PreTrainedConfig = AutoConfig.for_model(**config.architecture)
    except Exception as error:  # configurations of every kind check themselves in their own way
        reason = " ".join(str(error).split())[:300]
        raise OptionError(f"architecture is none that Transformers knows ({reason})") from error
    sizes = {"num_layers": "num_hidden_layers"} | {n: n for n in ("hidden_size", "vocab_size")}
    for name, theirs in sizes.items():
        ours, within = getattr(config, name), getattr(found, theirs, None)
        if ours != within:
            raise OptionError(f"{name} is {ours}, but the architecture has {within}")
    return found


def own_shapes(config: DraftConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights that are a draft model's own, by name.

    Raises OptionError for a configuration that no model can be built from.
    """
    try:
        model = build_skeleton(transformers_config(config), "it", trust_remote_code=False)
    except LoadError as error:
        raise OptionError(f"architecture makes no model: {error}") from error
    if model is None:
        name = config.architecture.get("model_type")
        raise OptionError(f"architecture is {name!r}, which is no causal language model")
    return {name: tuple(one.shape) for name, one in own_tensors(model).items()}


def own_tensors(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return the weights of a model, by name, but those of its embeddings and output layer."""
    shared = set(_ends(model))
    prefixes = tuple(f"{name}." for name, module in model.named_modules() if module in shared)
    return {name: one for name, one in model.state_dict().items() if not name.startswith(prefixes)}


def _ends(model: PreTrainedModel) -> tuple[nn.Module, nn.Module]:
    get_output: Any = model.get_output_embeddings  # untyped there
    return model.get_input_embeddings(), get_output()


def build_draft(
    config: DraftConfig,
    tensors: Mapping[str, Tensor],
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> PreTrainedModel:
    """Build a draft model from its own weights; `share` gives it a first and a last layer.

    Raises OptionError for a configuration that no model can be built from.
    """
    architecture = transformers_config(config)
    from_config: Any = AutoModelForCausalLM.from_config  # untyped there
    # Without numbers, the weights that are not its own are addresses, not memory.
    with quiet_transformers(), no_init_weights():
        model: Any = from_config(architecture, dtype=dtype)
    names = own_tensors(model)
    share(model, nn.Identity(), nn.Identity())
    own = {name: tensors[name].to(device, dtype) for name in names}
    # By its weights alone: what else it holds, such as frequencies, keeps its type.
    model.load_state_dict(own, assign=True)
    model.to(device)
    model.requires_grad_(False)
    model.eval()
    built: PreTrainedModel = model
    return built


def share(model: PreTrainedModel, embeddings: nn.Module, output_layer: nn.Module) -> None:
    """Let a draft model read with these embeddings and speak with this output layer."""
    model.set_input_embeddings(embeddings)
    set_output: Any = model.set_output_embeddings  # untyped there
    set_output(output_layer)


@torch.no_grad()
def output_rows(layer: nn.Module, ids: Tensor, dtype: torch.dtype) -> nn.Linear:
    """Return the part [D, H] of a target's output layer that speaks the token ids `ids` [D].

    Raises UnsupportedModelError for a layer whose weights cannot be parted.
    """
    weight: Any = getattr(layer, "weight", None)
    bias: Any = getattr(layer, "bias", None)
    if isinstance(layer, Int8Linear):
        where = ids.to(weight.device)
        rows = layer.matrix[where].float() * layer.scale[where].float()[:, None]
    elif type(layer) is nn.Linear and weight.is_floating_point() and not weight.is_meta:
        rows = weight[ids.to(weight.device)]
    else:
        raise UnsupportedModelError(
            f"the target's output layer is a {type(layer).__name__} that is quantised or "
            "offloaded: a draft model of some token ids cannot share it"
        )
    with torch.device("meta"):
        part = nn.Linear(rows.shape[1], rows.shape[0], bias=bias is not None)
    state = {"weight": rows.to(dtype)}
    if bias is not None:
        state["bias"] = bias[ids.to(bias.device)].to(dtype)
    part.load_state_dict(state, assign=True)
    part.requires_grad_(False)
    return part


def borrowed(layer: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Return a layer that answers as another does, in a dtype of its own.

    It has no weights, and teaches the other nothing.
    """
    return _Borrowed(layer, dtype)


class _Borrowed(nn.Module):
    def __init__(self, layer: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self._layer = [layer]  # in a list, it is no part of this one
        self._dtype = dtype

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        answer: Tensor = self._layer[0](inputs)
        return answer.to(self._dtype)
