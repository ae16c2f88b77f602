"""Where a run stands, kept in its folder: all of it or nothing, and never only one.

A checkpoint is a folder of weights, optimizer and a manifest with their digests. It is built under
another name and renamed when it is whole; one that is damaged later is skipped.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.checkpoints.files import new_folder, read_json, read_tensors, write_tensors
from outrider.errors import LoadError
from outrider.targets.diskcache import file_digest

if TYPE_CHECKING:
    from outrider.checkpoints.base import Tensors

_LOGGER = logging.getLogger("outrider")
_FORMAT = 1
_MANIFEST = "manifest.json"
_WEIGHTS, _OPTIMIZER = "model.safetensors", "optimizer.safetensors"
_PREFIX = "step-"
_KEPT = 2


@dataclass(frozen=True, slots=True)
class Best:
    """The step whose weights did best on the batches held out, and how well."""

    step: int
    tau: float


@dataclass(frozen=True, slots=True)
class Place:
    """How far a run has come: what was done, and the batch that is next."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    """Tokens learnt from, each as often as it was."""
    seconds: float = 0.0
    best: Best | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A checkpoint of a run: where it stood, what it was begun with, weights and optimizer."""

    place: Place
    course: Mapping[str, Any]
    weights: Tensors
    optimizer: Tensors


class RunFolder:
    """The checkpoints of one run: the last two, and the best that each of them knows of."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "checkpoints"

    def save(self, snapshot: Snapshot) -> Path:
        """Keep a snapshot, in place of any of the same step; let go of those not needed.

        Raises OptionError where the folder cannot be written.
        """
        entry = self._entry(snapshot.place.step)
        if entry.exists():
            shutil.rmtree(entry)
        with new_folder(entry) as building:
            write_tensors(building / _WEIGHTS, snapshot.weights)
            write_tensors(building / _OPTIMIZER, snapshot.optimizer)
            values = {
                "format": _FORMAT,
                "place": asdict(snapshot.place),
                "course": dict(snapshot.course),
                "sha256": {one: file_digest(building / one) for one in (_WEIGHTS, _OPTIMIZER)},
            }
            document = json.dumps(values | {"seal": _seal(values)}, indent=1, allow_nan=False)
            (building / _MANIFEST).write_text(document + "\n", encoding="utf-8")
        self._prune()
        return entry

    def steps(self) -> list[int]:
        """Return the steps there are checkpoints of, damaged ones included, the latest last."""
        names = (path.name.removeprefix(_PREFIX) for path in self.path.glob(f"{_PREFIX}*"))
        return sorted(int(name) for name in names if name.isdecimal())

    def newest(self) -> Snapshot | None:
        """Return the newest checkpoint that is intact, None where there is none at all.

        A damaged one is named in a line of the log and passed over. Raises LoadError where there is
        none but damaged ones.
        """
        self._sweep()
        steps = self.steps()
        for step in reversed(steps):
            try:
                return self.read(step)
            except LoadError as error:
                _LOGGER.warning("checkpoint of step %d skipped: %s", step, error)
        if steps:
            raise LoadError(f"no checkpoint in {self.path} is intact")
        return None

    def read(self, step: int) -> Snapshot:
        """Read the checkpoint of a step; raises LoadError unless all of it is as it was written."""
        entry = self._entry(step)
        values = _manifest(entry)
        for name, digest in values["sha256"].items():
            path = entry / name
            if not path.is_file() or file_digest(path) != digest:
                raise LoadError(f"cannot load {path}: missing or damaged")
        return Snapshot(
            place=_place(values["place"]),
            course=values["course"],
            weights=read_tensors(entry / _WEIGHTS),
            optimizer=read_tensors(entry / _OPTIMIZER),
        )

    def drop_after(self, step: int) -> None:
        """Remove the checkpoints of later steps, which were damaged or are to be made again."""
        for later in self.steps():
            if later > step:
                shutil.rmtree(self._entry(later))

    def _entry(self, step: int) -> Path:
        return self.path / f"{_PREFIX}{step:08d}"

    def _prune(self) -> None:
        """Keep the last checkpoints, and those they call the best: any of them may be the one."""
        steps = self.steps()
        kept = set(steps[-_KEPT:])
        kept |= {best for step in kept if (best := self._best_of(step)) is not None}
        for step in steps:
            if step not in kept:
                shutil.rmtree(self._entry(step))

    def _best_of(self, step: int) -> int | None:
        try:
            best = _place(_manifest(self._entry(step))["place"]).best
        except LoadError:
            return None
        return None if best is None else best.step

    def _sweep(self) -> None:
        """Remove what a run that was killed while it wrote has left behind."""
        for path in self.path.glob(f".{_PREFIX}*"):
            shutil.rmtree(path, ignore_errors=True)


def _manifest(entry: Path) -> dict[str, Any]:
    values = read_json(entry, _MANIFEST)
    seal = values.pop("seal", None)
    if values.get("format") != _FORMAT or seal != _seal(values):
        raise LoadError(f"cannot load {entry}: {_MANIFEST} is damaged, or of another version")
    return values


def _place(values: Mapping[str, Any]) -> Place:
    best = values["best"]
    return Place(**{**values, "best": None if best is None else Best(**best)})


def _seal(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
