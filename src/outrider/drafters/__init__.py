"""Drafters, and how one is built from what the user asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outrider.drafters.spec import TRAINED
from outrider.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn
    from transformers import PreTrainedConfig

    from outrider.checkpoints.base import Checkpoint
    from outrider.drafters.base import Drafter
    from outrider.drafters.spec import DrafterSpec
    from outrider.heads.eagle import EagleHead
    from outrider.heads.medusa import MedusaHeads
    from outrider.sampling.draw import Finder
    from outrider.targets.loading import LoadedModel
    from outrider.targets.transformers import TransformersTarget


def build_drafter(
    spec: DrafterSpec,
    loaded: LoadedModel,
    target: TransformersTarget,
    *,
    device: Any = None,
    compile: bool | None = None,
    trust_remote_code: bool = False,
    head: Checkpoint | None = None,
    chains_only: bool = False,
) -> Drafter[Any] | None:
    """Build the drafter a spec names for a target, which drives the model that was loaded.

    `device` and `compile` are those of a draft model (None: the target's device, where one that
    shares the target's embeddings always is), `head` is what `read_head` gave for the spec,
    `chains_only` forbids drafts that branch.

    Raises LoadError for a model that cannot be loaded, VocabularyMismatchError for one whose ids
    mean something else and cannot be translated, and OptionError for a layer there is no exit at,
    or a way of drafting that is not open to the model.
    """
    match spec.kind:
        case "none":
            return None
        case "ngram":
            from outrider.drafters.ngram import NgramDrafter

            return NgramDrafter()
        case "suffix":
            from outrider.drafters.suffix import SuffixDrafter

            return SuffixDrafter()
        case "grammar":
            from outrider.drafters.grammar import GrammarDrafter

            return GrammarDrafter()
        case "prediction":
            from outrider.drafters.prediction import PredictionDrafter

            return PredictionDrafter()
        case "eagle" | "medusa":
            assert head is not None
            return _build_head_drafter(head, target, chains_only)
        case "early-exit":
            assert spec.argument is not None
            return _build_early_exit(int(spec.argument), target)
        case "model":
            draft = head or read_head(spec, loaded.name, loaded.model.config)
            if draft is not None:
                return _build_sharing_drafter(draft, target, compile)
            if loaded.model.config.is_encoder_decoder:
                from outrider.drafters.encoder_decoder import build_encoder_decoder_drafter

                return build_encoder_decoder_drafter(
                    spec, loaded, target, device=device, trust_remote_code=trust_remote_code
                )
            options = (device, compile, trust_remote_code)
            return _build_model_drafter(spec, loaded, target.vocab_size, *options)


def read_head(spec: DrafterSpec, target: str, target_config: PreTrainedConfig) -> Checkpoint | None:
    """Read the trained head, or the draft model with the target's embeddings, that a spec names.

    None for a spec of another kind, or of a draft model that is whole. It must fit the target. A
    spec without a path means what comes with outrider for the target.

    Raises OptionError if there is none, LoadError for one that cannot be read, that does not fit,
    or that was trained together with a model which is not the target, and VocabularyMismatchError
    for other token ids.
    """
    if spec.kind not in TRAINED:
        return None
    from outrider.bundled import bundled_head
    from outrider.checkpoints.fit import require_own_target
    from outrider.checkpoints.read import holds_native, load_head

    name = spec.argument or str(bundled_head(spec.kind, target))
    if spec.kind == "model" and not holds_native(name):
        return None
    if spec.way is not None:
        raise OptionError(
            f"drafter {str(spec)!r} names a way to draft, but shares the target's embeddings: it "
            "drafts in the target's own token ids"
        )
    head = load_head(name, TRAINED[spec.kind], target_config)
    require_own_target(head, target, name)
    return head


def _build_head_drafter(
    head: Checkpoint, target: TransformersTarget, chains_only: bool
) -> Drafter[Any]:
    from outrider.heads.config import EagleConfig, MedusaConfig

    model = target.model
    embeddings: Any = model.get_input_embeddings()
    get_output: Any = model.get_output_embeddings  # untyped there
    options = {"width": 1} if chains_only else {}
    if isinstance(head.config, EagleConfig):
        from outrider.drafters.eagle import EagleDrafter
        from outrider.heads.eagle import EagleHead

        eagle = EagleHead.load(head.config, head.tensors)
        output_layer = _place(eagle, target, get_output(), borrows=not head.config.owns_head)
        return EagleDrafter(
            eagle,
            embeddings=embeddings,
            output_layer=output_layer,
            find=_finder(target),
            **options,
        )
    from outrider.drafters.medusa import MedusaDrafter
    from outrider.heads.medusa import MedusaHeads

    assert isinstance(head.config, MedusaConfig)
    medusa = MedusaHeads.load(head.config, head.tensors)
    output_layer = _place(medusa, target, get_output(), borrows=not head.config.owns_output)
    return MedusaDrafter(medusa, output_layer=output_layer, **options)


def _place(
    head: EagleHead | MedusaHeads,
    target: TransformersTarget,
    output_layer: nn.Module,
    *,
    borrows: bool,
) -> Callable[[Tensor], Tensor]:
    """Put a head where the target is, in its type; where that is compiled, by kernels of our own.

    Returns the output layer of the target for a head that borrows it: by the same kernels.
    """
    embeddings: Any = target.model.get_input_embeddings()
    head.to(embeddings.weight.device, target.model.dtype)
    if not _has_kernels(target):
        return output_layer
    from outrider.heads.kernels import lent_layer, run_by_kernels

    run_by_kernels(head)
    return lent_layer(output_layer, target.model.dtype) if borrows else output_layer


def _finder(target: TransformersTarget) -> Finder | None:
    """Return our own way to the likeliest tokens, where the target is compiled."""
    if not _has_kernels(target):
        return None
    from outrider.heads.kernels import find_leading

    return find_leading


def _has_kernels(target: TransformersTarget) -> bool:
    return target.is_compiled and target.device.type == "cpu"


def _build_early_exit(layer: int, target: TransformersTarget) -> Drafter[Any]:
    from outrider.drafters.early_exit import EarlyExitDrafter

    return EarlyExitDrafter(target.exit_at(layer))


def _build_sharing_drafter(
    draft: Checkpoint, target: TransformersTarget, compile: bool | None
) -> Drafter[Any]:
    """Build the drafter of a draft model that reads and speaks with the target's own layers."""
    from outrider.drafters.model import ModelDrafter
    from outrider.heads.config import DraftConfig
    from outrider.heads.draft import TOKEN_IDS, build_draft, output_rows, share
    from outrider.targets.transformers import TransformersTarget

    assert isinstance(draft.config, DraftConfig)
    dtype, device = target.model.dtype, target.device
    get_output: Any = target.model.get_output_embeddings  # untyped there
    embeddings, output_layer = target.model.get_input_embeddings(), get_output()
    model = build_draft(draft.config, draft.tensors, dtype=dtype, device=device)
    ids = draft.tensors.get(TOKEN_IDS)
    if ids is not None:
        ids = ids.to(device)
        share(model, embeddings, output_rows(output_layer, ids, dtype).to(device))
    if _has_kernels(target):
        from outrider.targets.kernels.layers import use_kernels

        use_kernels(model)
    if ids is None:  # after the kernels: they would make a copy of the target's own layer
        share(model, embeddings, output_layer)
    return ModelDrafter(
        TransformersTarget(model, compile=compile),
        vocab_size=target.vocab_size,
        shared_ids=target.vocab_size,
        ids=ids,
    )


def _build_model_drafter(
    spec: DrafterSpec,
    target: LoadedModel,
    vocab_size: int,
    device: Any,
    compile: bool | None,
    trust_remote_code: bool,
) -> Drafter[Any]:
    from outrider.drafters.foreign import ForeignDrafter
    from outrider.drafters.model import ModelDrafter
    from outrider.drafters.translation import Translation, relate
    from outrider.targets.loading import load_model
    from outrider.targets.transformers import TransformersTarget

    assert spec.argument is not None
    if spec.shares_encoder:
        raise OptionError(f"drafter {str(spec)!r}: {target.name} has no encoder to share")
    loaded = load_model(
        spec.argument,
        dtype=target.model.dtype,
        device=target.model.device if device is None else device,
        trust_remote_code=trust_remote_code,
    )
    model = TransformersTarget(loaded.model, compile=compile)
    found = relate(target.tokenizer, loaded.tokenizer, vocab_size, model.vocab_size, spec.way)
    if not isinstance(found, Translation):
        return ModelDrafter(model, vocab_size=vocab_size, shared_ids=found.shared_ids)
    assert target.tokenizer is not None and loaded.tokenizer is not None
    tokenizers = (target.tokenizer, loaded.tokenizer)
    return ForeignDrafter(model, found, tokenizers, vocab_size=vocab_size, way=spec.way)
