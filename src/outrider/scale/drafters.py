"""A drafter of ours in the form that vLLM loads, and why some have none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.drafters.spec import DrafterSpec, parse_specs
from outrider.errors import OptionError
from outrider.scale.lengths import Method
from outrider.targets.sources import find_source

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

_PROPOSER = "outrider.scale.proposer.SuffixProposer"
_METHODS: dict[str, Method] = {
    "ngram": "ngram",
    "suffix": "suffix",
    "model": "draft_model",
    "eagle": "eagle3",
}
_REASONS = {
    "medusa": "outrider hands it no Medusa heads: its later releases have none",
    "early-exit": "it cannot leave a target after some of its layers",
    "prediction": "its requests bring no predictions",
    "grammar": "it shows a drafter nothing of a request's grammar",
}


@dataclass(frozen=True, slots=True)
class VllmDrafter:
    """A drafter that vLLM has, and what it is loaded from."""

    spec: DrafterSpec
    method: Method
    model: str | None = None
    """A folder, a hub id or the path of a class."""

    @property
    def text(self) -> str:
        """The spec as it was written, by which profiles know a drafter."""
        return str(self.spec)

    @property
    def name(self) -> str:
        """vLLM's word for how it drafts."""
        return "custom_class" if self.method == "suffix" else self.method


def choose_drafter(text: str) -> DrafterSpec | None:
    """Read a drafter that vLLM can have, None for none; raises OptionError for any other."""
    specs = parse_specs(text)
    if len(specs) > 1:
        raise OptionError(
            f"drafter {text!r} names several, and vLLM has one drafter at a time; name one"
        )
    (spec,) = specs
    if spec.kind == "none":
        return None
    if spec.way is not None:
        raise OptionError(
            f"drafter {text!r} names a way to draft with another tokenizer, which vLLM does not "
            "have; leave it out"
        )
    if spec.kind not in _METHODS:
        reason = _REASONS.get(spec.kind, "it knows no such drafter")
        known = ", ".join(_METHODS)
        raise OptionError(f"drafter {text!r} cannot be had with vLLM: {reason}; it has {known}")
    return spec


def prepare_drafter(
    spec: DrafterSpec, target: str, dtype: torch.dtype | None, *, trust_remote_code: bool = False
) -> VllmDrafter:
    """Export what a spec names, once, and return what vLLM is to load.

    `dtype` is what the weights of a GGUF file are expanded to. Raises OptionError for what vLLM
    cannot load, LoadError for files that are missing or do not fit the target, and
    VocabularyMismatchError for a draft model whose token ids are not the target's.
    """
    method = _METHODS[spec.kind]
    if method == "suffix":
        return VllmDrafter(spec, method, _PROPOSER)
    if method == "eagle3":
        from outrider.checkpoints.exports import export_head

        head = export_head(spec.argument, target, trust_remote_code=trust_remote_code)
        return VllmDrafter(spec, method, str(head))
    if method == "draft_model":
        return VllmDrafter(spec, method, _draft_model(spec, target, dtype, trust_remote_code))
    return VllmDrafter(spec, method)


def _draft_model(
    spec: DrafterSpec, target: str, dtype: torch.dtype | None, trust_remote_code: bool
) -> str:
    from outrider.bundled import bundled_head
    from outrider.checkpoints.exports import export_draft_model
    from outrider.checkpoints.read import holds_native

    name = spec.argument or str(bundled_head(spec.kind, target))
    if holds_native(name):
        return str(export_draft_model(name, target, trust_remote_code=trust_remote_code))
    source = find_source(name)
    if source.quantization is not None:
        raise OptionError(
            f"drafter 'model:{name}' has weights of eight bits, which are outrider's own: "
            "vLLM reads none"
        )
    _require_same_ids(name, target, trust_remote_code)
    return source.weights(dtype)


def _require_same_ids(draft: str, target: str, trust_remote_code: bool) -> None:
    """Check that a draft model has the target's token ids, and as many rows, as vLLM wants it."""
    from outrider.drafters.vocabulary import compare_vocabularies
    from outrider.targets.loading import load_config, load_tokenizer

    def read(spec: str) -> tuple[PreTrainedTokenizerBase, int]:
        tokenizer = load_tokenizer(spec, trust_remote_code=trust_remote_code)
        config = load_config(spec, trust_remote_code=trust_remote_code)
        return tokenizer, int(config.get_text_config(decoder=True).vocab_size)

    (tokenizer, rows), (draft_tokenizer, draft_rows) = read(target), read(draft)
    compare_vocabularies(tokenizer, draft_tokenizer, rows, draft_rows)
    if rows != draft_rows:
        raise OptionError(
            f"drafter 'model:{draft}' has {draft_rows} token ids and the target {rows}: vLLM "
            "wants as many"
        )
