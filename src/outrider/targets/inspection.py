"""What a target and a drafter are and how they fit, without reading any weights."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from outrider.bundled import bundled_head
from outrider.checkpoints.inspection import HeadReport, inspect_head
from outrider.checkpoints.read import holds_native
from outrider.drafters.spec import TRAINED, Way, parse_spec
from outrider.drafters.translation import Overlap, Translation, relate
from outrider.drafters.vocabulary import VocabularyMatch
from outrider.errors import OptionError, UnsupportedModelError, VocabularyMismatchError
from outrider.targets.capabilities import (
    RollbackClass,
    reads_audio,
    rollback_class,
    unsupported_reasons,
)
from outrider.targets.devices import expanded_dtype, parse_device, parse_dtype
from outrider.targets.loading import load_config, read_config, read_extractor, read_tokenizer
from outrider.targets.quantization import int8_bytes, quantization_method, require_quantizable
from outrider.targets.skeleton import build_skeleton, count_parameters, kv_bytes_per_token
from outrider.targets.sources import Source, find_source
from outrider.targets.weights import stored_dtype

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from outrider.targets.devices import Dtype

_GOOD_RATIO = 10.0
"""A draft model this many times smaller than its target leaves drafting cheap enough to pay."""


@dataclass(frozen=True, slots=True)
class ModelReport:
    """One model, read off its configuration, its tokenizer and the sizes of its files.

    What cannot be known without the weights is None. `rows` is the width of the language-model
    head, padding included; `vocabulary` the number of ids its tokenizer gives a meaning.
    """

    spec: str
    model_type: str
    model_class: str | None
    layers: int | None
    parameters: int | None
    dtype: str
    weight_bytes: int | None
    file_bytes: int | None
    kv_bytes_per_token: int | None
    context_length: int | None
    rows: int
    vocabulary: int
    rollback: RollbackClass
    unsupported: tuple[str, ...]
    """Every reason why outrider does not drive this model; empty if it does."""
    hears_s: float | None = None
    """Seconds of sound that a speech model hears at once; None for a model that reads text."""
    hears_positions: int = 0
    """Positions of a cache that such an input takes, beside those of the text."""
    has_encoder: bool = False
    """Whether an encoder reads the prompt; `layers` and caches are then those of the decoder, and
    `kv_bytes_per_token` what a token takes of either."""


@dataclass(frozen=True, slots=True)
class PairReport:
    """A target, the drafter asked for, and how they fit.

    `drafter_kind` is the word before the colon of the drafter's spec; only a whole draft model has
    a `drafter` report, a `vocabulary` comparison (or an `overlap` of one that has other ids, or a
    `vocabulary_problem`) and a `size_ratio`,
    and only a trained head, or a draft model that shares the target's embeddings, a `head` report.
    """

    target: ModelReport
    drafter_kind: str
    drafter: ModelReport | None = None
    vocabulary: VocabularyMatch | None = None
    overlap: Overlap | None = None
    vocabulary_problem: str | None = None
    head: HeadReport | None = None

    @property
    def size_ratio(self) -> float | None:
        """How many times more parameters the target has than the draft model."""
        if self.drafter is None or not self.target.parameters or not self.drafter.parameters:
            return None
        return self.target.parameters / self.drafter.parameters

    @property
    def recommendation(self) -> str | None:
        """What the size ratio means for the user, if there is a draft model."""
        ratio = self.size_ratio
        if ratio is None:
            return None
        if ratio >= _GOOD_RATIO:
            return f"the draft model is {ratio:.1f} times smaller than the target: a good size"
        if ratio > 1:
            return (
                f"the draft model is only {ratio:.1f} times smaller than the target: "
                f"one at least {_GOOD_RATIO:.0f} times smaller is likelier to pay"
            )
        return "the draft model is not smaller than the target: drafting with it cannot pay"

    @property
    def total_bytes(self) -> int | None:
        """Weights, and the caches of one sequence as long as the target's context, and its input's.

        Of an input of text they are not counted: there is no telling how long it is.
        """
        total = 0
        for model in (self.target, self.drafter, self.head):
            if model is None:
                continue
            if model.weight_bytes is None or model.kv_bytes_per_token is None:
                return None
            total += model.weight_bytes
            heard = model.hears_positions if isinstance(model, ModelReport) else 0
            positions = (self.target.context_length or 0) + heard
            total += model.kv_bytes_per_token * positions
        return total

    @property
    def unsupported(self) -> tuple[str, ...]:
        """Every reason why this pair would be refused."""
        reasons = [f"target: {reason}" for reason in self.target.unsupported]
        if self.drafter is not None:
            reasons += [f"drafter: {reason}" for reason in self.drafter.unsupported]
            if self.drafter.has_encoder != self.target.has_encoder:
                with_one = "target" if self.target.has_encoder else "drafter"
                reasons.append(f"the {with_one} alone has an encoder: they read different things")
            elif (self.drafter.hears_s is None) != (self.target.hears_s is None):
                with_one = "target" if self.target.hears_s is not None else "drafter"
                reasons.append(f"the {with_one} alone hears recordings: the other reads text")
        if self.vocabulary_problem is not None:
            reasons.append(self.vocabulary_problem)
        if self.head is not None and self.head.problem is not None:
            reasons.append(self.head.problem)
        return tuple(reasons)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return asdict(self) | {
            "size_ratio": self.size_ratio,
            "recommendation": self.recommendation,
            "total_bytes": self.total_bytes,
            "unsupported": list(self.unsupported),
        }


def inspect_pair(
    target: str,
    drafter: str | None = None,
    *,
    dtype: Dtype | str = "auto",
    trust_remote_code: bool = False,
) -> PairReport:
    """Report on a target spec and a drafter spec; no weights are read but a trained head's.

    A GGUF file's tokenizer is converted on first use. What is unsupported is part of the report;
    LoadError is raised only for what cannot be found or read, OptionError for an unknown drafter.
    """
    drafter_spec = parse_spec(drafter or "none")
    kind = drafter_spec.kind
    wanted = parse_dtype(dtype)
    target_report, target_tokenizer = _inspect_model(target, wanted, trust_remote_code)
    if kind not in TRAINED:
        return PairReport(target_report, kind)
    path = drafter_spec.argument or str(bundled_head(kind, target))
    if kind != "model" or holds_native(path):
        config = load_config(target, trust_remote_code=trust_remote_code)
        head = inspect_head(path, TRAINED[kind], target, config)
        return PairReport(target_report, kind, head=head)
    draft_report, draft_tokenizer = _inspect_model(path, wanted, trust_remote_code)
    tokenizers = (target_tokenizer, draft_tokenizer)
    pair = PairReport(target_report, kind, draft_report)
    return _with_vocabularies(pair, tokenizers, drafter_spec.way)


def _with_vocabularies(
    pair: PairReport,
    tokenizers: tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase],
    way: Way | None,
) -> PairReport:
    """Add to the report of a draft model what its token ids are to the target."""
    assert pair.drafter is not None
    try:
        found = relate(*tokenizers, pair.target.rows, pair.drafter.rows, way)
        if not isinstance(found, Translation):
            return replace(pair, vocabulary=found)
        overlap = found.overlap
        return replace(pair, overlap=replace(overlap, ways=found.ways(way)))
    except (VocabularyMismatchError, OptionError) as error:
        return replace(pair, vocabulary_problem=str(error))


def _inspect_model(
    spec: str, wanted: torch.dtype | None, trust_remote_code: bool
) -> tuple[ModelReport, PreTrainedTokenizerBase]:
    source = find_source(spec)
    config = read_config(source, trust_remote_code)
    tokenizer = read_tokenizer(source, trust_remote_code)
    text_config = config.get_text_config(decoder=True)
    dtype = wanted or _default_dtype(source, config)
    skeleton = build_skeleton(config, spec, trust_remote_code=trust_remote_code)
    model_class = None if skeleton is None else type(skeleton)
    unsupported = unsupported_reasons(config, model_class=model_class)
    if skeleton is not None:
        unsupported += _quantization_problems(source, config, skeleton)
    report = ModelReport(
        spec=spec,
        model_type=config.model_type,
        model_class=None if model_class is None else model_class.__name__,
        layers=(
            getattr(text_config, "num_decoder_layers", None)  # as T5 has it
            or getattr(config, "decoder_layers", None)
            or getattr(text_config, "num_hidden_layers", None)
        ),
        parameters=None if skeleton is None else count_parameters(skeleton),
        dtype=_form(source, dtype),
        weight_bytes=_weight_bytes(source, config, skeleton, dtype),
        file_bytes=source.file_bytes(),
        kv_bytes_per_token=(
            None if unsupported or skeleton is None else kv_bytes_per_token(skeleton, dtype)
        ),
        context_length=(
            getattr(text_config, "max_position_embeddings", None)
            or getattr(text_config, "max_target_positions", None)  # as Whisper has it
        ),
        rows=text_config.vocab_size,
        vocabulary=len(tokenizer),
        rollback=rollback_class(config, model_class=model_class),
        unsupported=unsupported,
        hears_s=_hears_s(source, config),
        hears_positions=config.max_source_positions if reads_audio(config) else 0,
        has_encoder=bool(config.is_encoder_decoder),
    )
    return report, tokenizer


def _hears_s(source: Source, config: PreTrainedConfig) -> float | None:
    """Return the seconds that a speech model hears at once, None for a model of text."""
    if not reads_audio(config):
        return None
    extractor = read_extractor(source)
    return float(extractor.n_samples / extractor.sampling_rate)


def _default_dtype(source: Source, config: PreTrainedConfig) -> torch.dtype:
    """Return the dtype that loading with "auto" gives."""
    if source.gguf is not None:
        return expanded_dtype(parse_device(None))
    return stored_dtype(config)


def _form(source: Source, dtype: torch.dtype) -> str:
    """Say what the weights are kept in; `dtype` is that of all that is not quantised."""
    floating = str(dtype).removeprefix("torch.")
    return floating if source.quantization is None else f"int8 and {floating}"


def _weight_bytes(
    source: Source, config: PreTrainedConfig, skeleton: PreTrainedModel | None, dtype: torch.dtype
) -> int | None:
    """Return the bytes of the loaded weights; of a quantised checkpoint, those of its files."""
    if skeleton is None or quantization_method(config) is not None:
        return source.file_bytes()
    if source.quantization is None:
        return count_parameters(skeleton) * dtype.itemsize
    return int8_bytes(skeleton, dtype, with_head=source.quantization == "int8")


def _quantization_problems(
    source: Source, config: PreTrainedConfig, skeleton: PreTrainedModel
) -> tuple[str, ...]:
    """Return why a spec's suffix cannot be had for this model, if so."""
    if source.quantization is None:
        return ()
    method = quantization_method(config)
    if method is not None:
        return (f"it is quantised already, with {method}",)
    if source.quantization == "int8":
        try:
            require_quantizable(skeleton, type(skeleton).__name__)
        except UnsupportedModelError as error:
            return (str(error),)
    return ()
