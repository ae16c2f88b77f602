"""A smaller encoder-decoder as the drafter, with an encoder of its own (Leviathan et al. 2022)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outrider.drafters.base import DraftRequest
from outrider.drafters.model import ModelDrafter, ModelState
from outrider.drafters.vocabulary import compare_vocabularies
from outrider.errors import OptionError

if TYPE_CHECKING:
    from outrider.drafters.spec import DrafterSpec
    from outrider.targets.loading import LoadedModel


class EncoderDecoderDrafter(ModelDrafter):
    """Drafts with an encoder-decoder that shares its target's token ids.

    Its encoder reads the input of a request when it is first asked to draft for it. An input that
    it cannot read, as one too long for it, costs the request its drafts.
    """

    def begin(self, request: DraftRequest) -> ModelState:
        """Take on a request, and read its input."""
        state = super().begin(request)
        try:
            self._model.read(state.sequence, request.input_ids or ())
        except BaseException:
            self.end(state)
            raise
        return state


def build_encoder_decoder_drafter(
    spec: DrafterSpec,
    target: LoadedModel,
    vocab_size: int,
    *,
    device: Any = None,
    trust_remote_code: bool = False,
) -> EncoderDecoderDrafter:
    """Load the draft model that a spec names for an encoder-decoder with `vocab_size` ids.

    Raises OptionError for a draft model of another kind, and whatever loading raises.
    """
    from outrider.targets.encoder_decoder import EncoderDecoderTarget
    from outrider.targets.loading import load_config, load_model

    assert spec.argument is not None
    if spec.way is not None:
        raise OptionError(f"drafter {str(spec)!r}: no way applies where the target has an encoder")
    if not load_config(spec.argument, trust_remote_code=trust_remote_code).is_encoder_decoder:
        raise OptionError(
            f"drafter {str(spec)!r} has no encoder: it cannot read what {target.name} reads"
        )
    loaded = load_model(
        spec.argument,
        dtype=target.model.dtype,
        device=target.model.device if device is None else device,
        trust_remote_code=trust_remote_code,
    )
    model = EncoderDecoderTarget(loaded.model)
    match = compare_vocabularies(target.tokenizer, loaded.tokenizer, vocab_size, model.vocab_size)
    return EncoderDecoderDrafter(model, vocab_size=vocab_size, shared_ids=match.shared_ids)
