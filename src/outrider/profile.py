"""What was measured of a model on a machine, kept in a file and used only where it fits.

A profile changes how fast text comes, never which text. One that is damaged, or was measured with
another model, machine or version, is not used.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.errors import LoadError, OptionError
from outrider.files import write_at_once
from outrider.machine import Machine, this_machine
from outrider.targets.diskcache import cache_directory

if TYPE_CHECKING:
    from outrider.targets.loading import LoadedModel
    from outrider.targets.transformers import TransformersTarget

_LOGGER = logging.getLogger("outrider")
_FORMAT = 4
# These say where a configuration came from, or how it is run, not what the model is.
_INCIDENTAL = frozenset({"_name_or_path", "transformers_version", "torch_dtype", "dtype"})


@dataclass(frozen=True, slots=True)
class Subject:
    """The model a profile speaks of, and how it was run."""

    model: str
    config: str
    """Digest of the model's configuration."""
    dtype: str
    numerics: str
    is_compiled: bool
    placement: str
    """Where the weights are: a device, or the digest of a map of several."""
    reads_blocks: bool = False
    """Whether passes read the weights in the blocks of a GGUF file."""

    @property
    def passes(self) -> str:
        """How passes are run, in a word or two."""
        if not self.is_compiled:
            return "eager"
        return "compiled, from GGUF blocks" if self.reads_blocks else "compiled"

    def difference(self, other: Subject) -> str | None:
        """Say in words where two subjects first differ, None if they are the same."""
        ours, theirs = asdict(self), asdict(other)
        for name, value in ours.items():
            if theirs[name] != value:
                return f"{name.removeprefix('is_')} {theirs[name]} instead of {value}"
        return None


@dataclass(frozen=True, slots=True)
class Profile:
    """The costs and acceptance measured for a subject, and the runs they come from."""

    subject: Subject
    machine: Machine
    passes: Mapping[str, Any]
    """What passes of the target cost, as `PassCosts.to_dict` gives it."""
    drafters: Mapping[str, Any]
    """What was learnt of each drafter, by its spec, as `Engine.to_profile` gives it."""
    results: tuple[Mapping[str, Any], ...] = ()
    """One row a drafter, of the table `outrider tune` showed."""
    measured: str = field(default="", compare=False)
    """When, as an ISO date and time."""

    def for_drafters(self, specs: Mapping[str, str | None]) -> dict[str, Any]:
        """Return what `Engine(profile=...)` can use with these drafters (its name to spec).

        What was learnt of a drafter serves one of the same spec only: two draft models have one
        kind, and nothing else in common.
        """
        named = {name: spec for name, spec in specs.items() if spec is not None}
        known = {name: self.drafters[spec] for name, spec in named.items() if spec in self.drafters}
        return {"pass": self.passes, "drafters": known}

    def misfit(self, subject: Subject, machine: Machine) -> str | None:
        """Say why the profile does not hold for a subject on a machine, None if it does."""
        return subject.difference(self.subject) or machine.difference(self.machine)

    def save(self, path: Path | None = None) -> Path:
        """Write the profile to a file, its place in the cache by default; return the path.

        A reader sees the old file or the new one, never half of one. Raises LoadError.
        """
        path = profile_path(self.subject) if path is None else path
        values = json.loads(json.dumps(asdict(self), allow_nan=False))  # as a reader will see them
        document = {"format": _FORMAT, "sha256": _seal(values), "profile": values}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_at_once(path, json.dumps(document, indent=1, sort_keys=True) + "\n")
        except OSError as error:
            raise LoadError(f"cannot write the profile {path}: {error.strerror}") from error
        return path

    @classmethod
    def load(cls, path: Path) -> Profile:
        """Read a profile; raises LoadError for a file that is not one, or not intact."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["format"] != _FORMAT:
                raise ValueError(f"its format is {document['format']}, not {_FORMAT}")
            values = document["profile"]
            if document["sha256"] != _seal(values):
                raise ValueError("it was changed or cut")
            profile = cls(
                **values
                | {
                    "subject": Subject(**values["subject"]),
                    "machine": Machine(**values["machine"]),
                    "results": tuple(values["results"]),
                }
            )
        except (OSError, ValueError, TypeError, KeyError) as error:
            reason = getattr(error, "strerror", None) or error
            raise LoadError(f"{path} is no usable profile: {reason}") from error
        return profile


def describe_subject(loaded: LoadedModel, target: TransformersTarget) -> Subject:
    """Say what a profile of this model, driven by this target, is about."""
    config = loaded.model.config.to_dict()
    kept = {name: value for name, value in config.items() if name not in _INCIDENTAL}
    placement = getattr(loaded.model, "hf_device_map", None)
    is_spread = placement is not None and len(set(placement.values())) > 1
    return Subject(
        model=loaded.name,
        config=_digest(json.dumps(kept, sort_keys=True, default=str)),
        dtype=str(loaded.model.dtype).removeprefix("torch."),
        numerics=target.numerics,
        is_compiled=target.is_compiled,
        placement=_digest(str(placement)) if is_spread else str(target.device),
        reads_blocks=target.reads_blocks,
    )


def profile_path(subject: Subject) -> Path:
    """Return where the profile of a subject is kept on this machine."""
    key = _digest(json.dumps(asdict(subject), sort_keys=True))
    return cache_directory() / "profiles" / f"{_file_name(subject.model)}-{key}.json"


def _file_name(model: str) -> str:
    """Return what the files of a model's profiles begin with; other models may share it."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in model.split("/")[-1])[:60]


def find_profile(
    chosen: bool | str | Path | None, loaded: LoadedModel, target: TransformersTarget
) -> Profile | None:
    """Return the profile to use for a loaded model.

    `chosen` None is the stored one if there is one that fits, False none, a path that very file.
    Raises LoadError for a file that cannot be read, and OptionError for one that does not fit.
    """
    if chosen is False:
        return None
    subject, machine = describe_subject(loaded, target), this_machine(target.device)
    if chosen is not None:
        profile = Profile.load(Path(str(chosen)))
        if (reason := profile.misfit(subject, machine)) is not None:
            raise OptionError(f"profile {str(chosen)!r} does not fit: it is of {reason}")
        return profile
    path = profile_path(subject)
    if not path.exists():
        return None
    try:
        profile = Profile.load(path)
    except LoadError as error:
        _LOGGER.warning("%s; run `outrider tune` to measure again", error)
        return None
    if (reason := profile.misfit(subject, machine)) is not None:
        _LOGGER.warning("profile not used, as it is of %s; run `outrider tune` again", reason)
        return None
    return profile


def profiles_of(model: str) -> list[Profile]:
    """Return the stored profiles of a model that hold on this machine, the latest first.

    There is one for each way in which it was run. Of a damaged one a line is logged.
    """
    found = []
    for path in sorted((cache_directory() / "profiles").glob(f"{_file_name(model)}-*.json")):
        try:
            profile = Profile.load(path)
        except LoadError as error:
            _LOGGER.warning("%s; run `outrider tune` to measure again", error)
            continue
        if profile.subject.model == model and _is_here(profile.machine):
            found.append(profile)
    return sorted(found, key=lambda profile: profile.measured, reverse=True)


def _is_here(machine: Machine) -> bool:
    import torch

    if machine.accelerator is None:
        device = torch.device("cpu")
    elif torch.cuda.is_available():
        device = torch.device("cuda")
    else:
        return False
    return machine.difference(this_machine(device)) is None


def _seal(values: Any) -> str:
    return _digest(json.dumps(values, sort_keys=True))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
