"""From what a user names to a decoder: the target, its passes, its drafters and its profile."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from outrider.checkpoints.base import Checkpoint
from outrider.decoder import Decoder
from outrider.drafters import build_drafter, read_head
from outrider.drafters.base import Drafter
from outrider.drafters.spec import TRAINED, DrafterSpec, parse_specs
from outrider.engine.costs import PassCosts
from outrider.engine.engine import Engine, check_engine_options, require_one_rule
from outrider.engine.measure import glance
from outrider.engine.warming import warm_up
from outrider.errors import OptionError
from outrider.profile import find_profile
from outrider.targets.capabilities import reads_audio
from outrider.targets.encoder_decoder import EncoderDecoderTarget
from outrider.targets.loading import LoadedModel, load_config, load_model
from outrider.targets.speech import SpeechTarget
from outrider.targets.transformers import TransformersTarget
from outrider.types import Numerics, Rule
from outrider.verification.lossy import parse_lossy

_LOGGER = logging.getLogger("outrider")


def load(
    target: str | PreTrainedModel,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    drafter: str | Drafter[Any] | Sequence[Drafter[Any]] = "none",
    rule: Rule = "match",
    lossy: str | None = None,
    max_draft: int | Literal["auto"] = "auto",
    max_batch: int = 8,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device | None = None,
    max_memory: Mapping[str | int, str | int] | None = None,
    offload_folder: str | None = None,
    numerics: Numerics = "fast",
    compile: bool | None = None,
    profile: bool | str | Path | None = None,
    trust_remote_code: bool = False,
) -> Decoder:
    """Load a target and its drafters.

    `target` is an alias ("smollm2-135m"), a hub id, a local folder, a .gguf file, or a loaded
    Transformers model (then pass its `tokenizer`; the model is not changed). `drafter` is "none",
    "ngram", "suffix", "grammar", "prediction" (given with each request) or "prediction:FILE",
    "model:ID_OR_PATH" (with another tokenizer "?way=tokens" or "?way=text" behind it names how it
    drafts), "eagle:PATH", "medusa:PATH" (or these words alone, for what comes along for
    the target), "early-exit:LAYER", several of these with commas between, of which each round uses
    the best, or objects of your own. `max_draft` "auto" decides each round how far drafting pays;
    a number drafts that far every round. `lossy` "lenience:L", "typical:EPSILON,DELTA" or
    "fly:WINDOW,ENTROPY" lets more drafts pass than the target's own words: the text is no longer
    what the target says, and every result says so.

    `device` "auto" spreads the weights over GPU, CPU and disk (`max_memory`, `offload_folder`).
    `compile` True compiles the passes, once for a model and machine, in minutes; None uses what
    was compiled before. `profile` None uses what `outrider tune` measured for this model and
    machine, a path that very file, False nothing.

    Raises LoadError, UnsupportedModelError, VocabularyMismatchError or OptionError.
    """
    # What can be refused is refused before a model is read.
    relaxed = None if lossy is None else parse_lossy(lossy)
    require_one_rule(rule, relaxed)
    choice = check_options(drafter, rule, max_draft, max_batch, numerics, compile, profile)
    heads = choice.read_heads(target, trust_remote_code)
    loaded = load_model(
        target,
        tokenizer=tokenizer,
        dtype=dtype,
        device=device,
        max_memory=max_memory,
        offload_folder=offload_folder,
        trust_remote_code=trust_remote_code,
    )
    model_target = _drive(loaded, numerics, compile)
    # A draft model is small: it stands where the target reads its tokens.
    beside = model_target.device if device in (None, "auto") else device
    drafters = choice.build(
        loaded,
        model_target,
        heads,
        chains_only=rule == "block",
        device=beside,
        compile=compile,
        trust_remote_code=trust_remote_code,
    )
    found = find_profile(profile, loaded, model_target)
    is_guessed = found is None and bool(drafters) and max_draft == "auto"
    costs = _glance(model_target) if is_guessed else PassCosts()
    if model_target.is_compiled:  # elsewhere passes are as slow as what a first proposal sets up
        warm_up(model_target, drafters[: len(choice.specs)])
    plain = Decoder(
        Engine(model_target, max_batch=max_batch, costs=costs),
        loaded,
        specs=choice.texts(drafters),
        prediction=choice.prediction,
        profile=found,
    )
    return plain.using(drafters, rule=rule, lossy=relaxed, max_draft=max_draft)


def _drive(loaded: LoadedModel, numerics: Numerics, compile: bool | None) -> TransformersTarget:
    """Return the target that drives a model, of whichever kind it is."""
    if loaded.model.config.is_encoder_decoder:
        beams = getattr(loaded.model.generation_config, "num_beams", None) or 1
        if beams > 1:
            _LOGGER.warning(
                "%s asks for %d beams by default: texts are decoded without", loaded.name, beams
            )
        if reads_audio(loaded.model.config):
            return SpeechTarget(
                loaded.model, extractor=loaded.extractor, numerics=numerics, compile=compile
            )
        return EncoderDecoderTarget(loaded.model, numerics=numerics, compile=compile)
    return TransformersTarget(loaded.model, numerics=numerics, compile=compile, gguf=loaded.gguf)


def _glance(target: TransformersTarget) -> PassCosts:
    """Return what passes cost here, by a few of them: enough not to begin with a mere guess."""
    points = glance(target)
    return PassCosts.glanced((p.computed, p.attended, p.seconds, p.batch) for p in points)


def check_options(
    drafter: object,
    rule: Rule,
    max_draft: int | Literal["auto"],
    max_batch: int,
    numerics: object,
    compile: object,
    profile: object,
) -> DrafterChoice:
    """Raise OptionError for what `load` would refuse whatever the model; return the drafters."""
    check_engine_options(rule, max_draft, max_batch)
    if numerics not in ("fast", "invariant"):
        raise OptionError(f"numerics is {numerics!r}; it must be 'fast' or 'invariant'")
    if compile is not None and not isinstance(compile, bool):
        raise OptionError(f"compile is {compile!r}; it must be True, False or None")
    if profile is True or not (profile is None or isinstance(profile, bool | str | Path)):
        raise OptionError(f"profile is {profile!r}; it must be None, False or the path of a file")
    return DrafterChoice.of(drafter)


@dataclass(frozen=True, slots=True)
class DrafterChoice:
    """The drafters asked for: specs to build from, or objects to use as they are."""

    specs: tuple[DrafterSpec, ...] = ()
    objects: tuple[Drafter[Any], ...] = ()
    prediction: str | None = None
    """The text of the prediction file, if a spec names one."""

    @classmethod
    def of(cls, drafter: object) -> DrafterChoice:
        """Read what a user chose; raises OptionError."""
        if isinstance(drafter, str):
            specs = parse_specs(drafter)
            files = [s.argument for s in specs if s.kind == "prediction" and s.argument]
            return cls(specs, prediction=_read_prediction(files[0]) if files else None)
        objects = [drafter] if isinstance(drafter, Drafter) else drafter
        if isinstance(objects, Sequence) and all(isinstance(one, Drafter) for one in objects):
            return cls(objects=tuple(objects))
        raise OptionError(
            f"drafter is {drafter!r}; it must be a spec (text), a Drafter or a list of them"
        )

    def read_heads(
        self, target: str | PreTrainedModel, trust_remote_code: bool
    ) -> list[Checkpoint | None]:
        """Read the trained drafters that specs name, and check that they fit the target."""
        if not any(spec.kind in TRAINED for spec in self.specs):
            return [None] * len(self.specs)
        if isinstance(target, str):
            name, config = target, load_config(target, trust_remote_code=trust_remote_code)
        else:
            name, config = str(getattr(target.config, "_name_or_path", "")), target.config
        return [read_head(spec, name, config) for spec in self.specs]

    def build(
        self,
        loaded: LoadedModel,
        target: TransformersTarget,
        heads: Sequence[Checkpoint | None],
        **options: Any,
    ) -> tuple[Drafter[Any], ...]:
        """Return the drafters, those of specs built for this target."""
        built = [
            build_drafter(spec, loaded, target, head=head, **options)
            for spec, head in zip(self.specs, heads, strict=True)
        ]
        return (*(one for one in built if one is not None), *self.objects)

    def texts(self, drafters: Sequence[Drafter[Any]]) -> dict[Drafter[Any], str]:
        """Return the spec of each drafter that was built from one."""
        specs = [spec for spec in self.specs if spec.kind != "none"]
        return {drafter: str(spec) for spec, drafter in zip(specs, drafters, strict=False)}


def _read_prediction(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"the prediction file {path!r} cannot be read: {error}") from error
