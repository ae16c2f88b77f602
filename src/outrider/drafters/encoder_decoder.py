"""A smaller encoder-decoder as the drafter, with an encoder of its own (Leviathan et al. 2022)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outrider.drafters.base import DraftRequest
from outrider.drafters.model import ModelDrafter, ModelState
from outrider.drafters.vocabulary import compare_vocabularies
from outrider.errors import OptionError

if TYPE_CHECKING:
    from outrider.drafters.spec import DrafterSpec
    from outrider.targets.encoder_decoder import EncoderDecoderTarget
    from outrider.targets.loading import LoadedModel
    from outrider.targets.transformers import TransformersTarget


class EncoderDecoderDrafter(ModelDrafter):
    """Drafts with an encoder-decoder that shares its target's token ids.

    Its encoder reads the input of a request when it is first asked to draft for it. An input that
    it cannot read, as one too long for it, costs the request its drafts.
    """

    def begin(self, request: DraftRequest) -> ModelState:
        """Take on a request, and read its input."""
        state = super().begin(request)
        try:
            self._model.read(state.sequence, request.input or ())
        except BaseException:
            self.end(state)
            raise
        return state


def build_encoder_decoder_drafter(
    spec: DrafterSpec,
    loaded: LoadedModel,
    target: TransformersTarget,
    *,
    device: Any = None,
    trust_remote_code: bool = False,
) -> EncoderDecoderDrafter:
    """Load the draft model that a spec names for an encoder-decoder, which drives what was loaded.

    Raises OptionError for a draft model of another kind, and whatever loading raises.
    """
    from outrider.targets.capabilities import reads_audio
    from outrider.targets.loading import load_config, load_model

    assert spec.argument is not None
    if spec.way is not None:
        raise OptionError(f"drafter {str(spec)!r}: no way applies where the target has an encoder")
    config = load_config(spec.argument, trust_remote_code=trust_remote_code)
    if not config.is_encoder_decoder or reads_audio(config) != target.reads_audio:
        kind = "reads text" if target.reads_audio else "hears recordings"
        kind = kind if config.is_encoder_decoder else "has no encoder"
        raise OptionError(f"drafter {str(spec)!r} {kind}: it cannot read what {loaded.name} reads")
    draft = load_model(
        spec.argument,
        dtype=loaded.model.dtype,
        device=loaded.model.device if device is None else device,
        trust_remote_code=trust_remote_code,
    )
    model = _drive(draft, target, spec)
    vocab_size = target.vocab_size
    match = compare_vocabularies(loaded.tokenizer, draft.tokenizer, vocab_size, model.vocab_size)
    return EncoderDecoderDrafter(model, vocab_size=vocab_size, shared_ids=match.shared_ids)


def _drive(
    draft: LoadedModel, target: TransformersTarget, spec: DrafterSpec
) -> EncoderDecoderTarget:
    """Return a draft model as a target of its own, which may hear by the encoder of its target."""
    from outrider.targets.encoder_decoder import EncoderDecoderTarget
    from outrider.targets.speech import SpeechTarget

    if isinstance(target, SpeechTarget):
        must = spec.shares_encoder
        return SpeechTarget.beside(target, draft.model, draft.extractor, must_share=must)
    if spec.shares_encoder:
        raise OptionError(f"drafter {str(spec)!r}: encoders are shared by speech models alone")
    return EncoderDecoderTarget(draft.model)
