"""A draft model with its target's embeddings and output layer in it, as Transformers saves one."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.checkpoints.base import Checkpoint
from outrider.checkpoints.files import let_others_read, new_folder
from outrider.checkpoints.fit import check_fit
from outrider.errors import OptionError
from outrider.heads.config import DraftConfig

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel

    from outrider.targets.loading import LoadedModel


def write_whole(checkpoint: Checkpoint, target: LoadedModel, folder: Path) -> tuple[str, ...]:
    """Write a draft model as a whole one, in a new folder; return the names of the files.

    It says all token ids, whether it learnt to or not: other programs know no draft vocabulary.
    Raises OptionError for a trained head, and for a target whose output layer is quantised;
    LoadError and VocabularyMismatchError for a target that does not fit.
    """
    from outrider.targets.quiet import quiet_transformers

    if not isinstance(checkpoint.config, DraftConfig):
        raise OptionError(
            f"{checkpoint.title} heads cannot be written as transformers: they are no model"
        )
    check_fit(checkpoint.config, target.model.config, "the draft model")
    model: Any = _whole(checkpoint, checkpoint.config, target)
    with new_folder(folder) as building, quiet_transformers():
        model.save_pretrained(building)
        if target.tokenizer is not None:
            target.tokenizer.save_pretrained(building)
        for path in building.glob("*.safetensors"):
            let_others_read(path)
        return tuple(sorted(path.name for path in building.iterdir()))


def _whole(checkpoint: Checkpoint, config: DraftConfig, target: LoadedModel) -> PreTrainedModel:
    import torch

    from outrider.heads.draft import TOKEN_IDS, build_draft, share

    cpu = torch.device("cpu")
    own = {name: part for name, part in checkpoint.tensors.items() if name != TOKEN_IDS}
    dtype = next(iter(own.values())).dtype
    model = build_draft(config, own, dtype=dtype, device=cpu)
    # Copied together, so that weights the two share are one matrix still.
    embeddings, output_layer = deepcopy(_ends(target))
    share(model, embeddings.to(cpu, dtype), output_layer.to(cpu, dtype))
    model.generation_config = deepcopy(target.model.generation_config)
    return model


def _ends(target: LoadedModel) -> tuple[nn.Module, nn.Module]:
    from torch import nn

    get_output: Any = target.model.get_output_embeddings  # untyped there
    output_layer: Any = get_output()
    if type(output_layer) is not nn.Linear or not output_layer.weight.is_floating_point():
        raise OptionError(
            f"{target.name} has a quantised output layer; name the model that it was made from"
        )
    return target.model.get_input_embeddings(), output_layer
