"""Drafters, and how one is built from what the user asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.drafters.base import Drafter
    from outrider.drafters.spec import DrafterSpec
    from outrider.targets.loading import LoadedModel


def build_drafter(
    spec: DrafterSpec,
    target: LoadedModel,
    vocab_size: int,
    *,
    device: Any,
    compile: bool | None,
    trust_remote_code: bool,
) -> Drafter[Any] | None:
    """Build the drafter a spec names for a target with `vocab_size` logits.

    `compile` is as for the target's own passes.

    Raises LoadError for a model that cannot be loaded, and VocabularyMismatchError for one whose
    ids mean something else.
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
        case "prediction":
            from outrider.drafters.prediction import PredictionDrafter

            return PredictionDrafter()
        case "model":
            assert spec.argument is not None
            return _build_model_drafter(
                spec.argument, target, vocab_size, device, compile, trust_remote_code
            )


def _build_model_drafter(
    spec: str,
    target: LoadedModel,
    vocab_size: int,
    device: Any,
    compile: bool | None,
    trust_remote_code: bool,
) -> Drafter[Any]:
    from outrider.drafters.model import ModelDrafter
    from outrider.drafters.vocabulary import compare_vocabularies
    from outrider.targets.loading import load_model
    from outrider.targets.transformers import TransformersTarget

    loaded = load_model(
        spec,
        dtype=target.model.dtype,
        device=target.model.device if device is None else device,
        trust_remote_code=trust_remote_code,
    )
    model = TransformersTarget(loaded.model, compile=compile)
    shared = compare_vocabularies(
        target.tokenizer, loaded.tokenizer, vocab_size, model.vocab_size
    ).shared_ids
    return ModelDrafter(model, vocab_size=vocab_size, shared_ids=shared)
