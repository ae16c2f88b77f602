"""Drafters, and the words users choose one with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outrider.errors import OptionError

if TYPE_CHECKING:
    from outrider.drafters.base import Drafter
    from outrider.targets.loading import LoadedModel

SPECS = "none, ngram, suffix, prediction, model:ID_OR_PATH"


def build_drafter(
    spec: str, target: LoadedModel, vocab_size: int, *, device: Any, trust_remote_code: bool
) -> Drafter[Any] | None:
    """Build the drafter a spec names for a target with `vocab_size` logits.

    Raises OptionError for an unknown spec, LoadError for a model that cannot be loaded, and
    VocabularyMismatchError for one whose ids mean something else.
    """
    kind, _, argument = spec.partition(":")
    if kind == "model":
        if not argument:
            raise OptionError("drafter 'model:' names no model; write model:ID_OR_PATH")
        return _build_model_drafter(argument, target, vocab_size, device, trust_remote_code)
    if argument or spec.endswith(":"):
        raise OptionError(f"drafter {spec!r} is unknown; known are {SPECS}")
    if kind == "none":
        return None
    if kind == "ngram":
        from outrider.drafters.ngram import NgramDrafter

        return NgramDrafter()
    if kind == "suffix":
        from outrider.drafters.suffix import SuffixDrafter

        return SuffixDrafter()
    if kind == "prediction":
        from outrider.drafters.prediction import PredictionDrafter

        return PredictionDrafter()
    raise OptionError(f"drafter {spec!r} is unknown; known are {SPECS}")


def _build_model_drafter(
    spec: str, target: LoadedModel, vocab_size: int, device: Any, trust_remote_code: bool
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
    model = TransformersTarget(loaded.model)
    shared = compare_vocabularies(
        target.tokenizer, loaded.tokenizer, vocab_size, model.vocab_size
    ).shared_ids
    return ModelDrafter(model, vocab_size=vocab_size, shared_ids=shared)
