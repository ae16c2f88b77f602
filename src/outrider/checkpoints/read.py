"""Reading a trained head, whatever format it is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.checkpoints.base import Checkpoint, Kind
from outrider.checkpoints.eagle import read_eagle
from outrider.checkpoints.files import CONFIG, read_json
from outrider.checkpoints.fit import check_fit, resolve
from outrider.checkpoints.medusa import HEAD_FILES, read_medusa
from outrider.checkpoints.native import KEY as NATIVE
from outrider.checkpoints.native import read_native
from outrider.checkpoints.speculators import KEY as SPECULATORS
from outrider.checkpoints.speculators import read_speculators
from outrider.checkpoints.tensors import require_tensors
from outrider.errors import LoadError, OptionError
from outrider.heads.config import EagleConfig

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# A key, or a part of the name of an architecture, that tells a kind of head we do not drive.
_FOREIGN_KEYS = {
    "hydra_num_heads": "Hydra",
    "dflash_config": "DFlash",
    "markov_rank": "DSpark",
    "num_nextn_predict_layers": "multi-token prediction",
}
_FOREIGN_NAMES = {
    "dflash": "DFlash",
    "dspark": "DSpark",
    "peagle": "P-EAGLE",
    "mtp": "multi-token prediction",
    "mlpspeculator": "MLP speculator",
    "hydra": "Hydra",
}
_SUPPORTED = "EAGLE-1, EAGLE-2, EAGLE-3 and Medusa"


def find_folder(spec: str) -> Path:
    """Return the folder of a head: one on this machine, or a hub id that was downloaded before.

    Raises LoadError.
    """
    path = Path(spec).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise LoadError(f"cannot load {spec}: it is a file; name the folder of the head")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(spec, local_files_only=True))
    except (ValueError, OSError) as error:  # not an id, or not there
        raise LoadError(
            f"unknown head {spec!r}: no such folder, and not among the downloaded models"
        ) from error


def holds_native(spec: str) -> bool:
    """Whether a user's words name a trained drafter in our own format, and not a whole model."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    path = Path(spec).expanduser()
    if not path.is_dir():
        try:
            cached = try_to_load_from_cache(spec, CONFIG)
        except HFValidationError:  # no id
            return False
        if not isinstance(cached, str):
            return False
        path = Path(cached).parent
    return (path / CONFIG).is_file() and NATIVE in read_json(path)


def read_checkpoint(folder: Path, target: PreTrainedConfig | None = None) -> Checkpoint:
    """Read a trained head from a folder, in any known format, every tensor checked.

    With the configuration of a target, it must also fit that target, and what it leaves to the
    target is filled in. Raises LoadError, and VocabularyMismatchError for a head of other token
    ids, with one line naming the file or tensor and what is wrong with it.
    """
    values = read_json(folder)
    try:
        checkpoint = _read(folder, values)
        require_tensors(checkpoint.config, checkpoint.tensors, str(folder))
    except OptionError as error:
        raise LoadError(f"cannot load {folder}: config.json: {error}") from error
    config = checkpoint.config
    if target is None:
        return checkpoint
    check_fit(config, target, str(folder))
    if not isinstance(config, EagleConfig):
        return checkpoint
    return replace(checkpoint, config=resolve(config, target, str(folder)))


def load_head(
    spec: str, kind: Kind | None = None, target: PreTrainedConfig | None = None
) -> Checkpoint:
    """Read the head a user names, of the kind they say if they do; raises as `read_checkpoint`."""
    folder = find_folder(spec)
    checkpoint = read_checkpoint(folder, target)
    if kind not in (None, checkpoint.kind):
        what = "a draft model" if checkpoint.kind == "draft" else checkpoint.title
        raise LoadError(f"{spec} is {what}: write {checkpoint.spec_word}:{spec}")
    return checkpoint


def _read(folder: Path, values: Mapping[str, Any]) -> Checkpoint:
    if NATIVE in values:
        return read_native(folder, values)
    if SPECULATORS in values:
        return read_speculators(folder, values)
    foreign = _foreign(values)
    if foreign is not None:
        raise LoadError(
            f"cannot load {folder}: a {foreign} head is not supported; supported are {_SUPPORTED}"
        )
    has_heads = any((folder / name).is_file() for name in HEAD_FILES)
    if has_heads or any(key.startswith("medusa_") for key in values):
        return read_medusa(folder, values)
    return read_eagle(folder, values)


def _foreign(values: Mapping[str, Any]) -> str | None:
    for key, name in _FOREIGN_KEYS.items():
        if values.get(key):
            return name
    names = values.get("architectures")
    said = [values.get("model_type"), *(names if isinstance(names, list) else [])]
    plain = " ".join(str(one).lower().replace("_", "") for one in said)
    return next((name for part, name in _FOREIGN_NAMES.items() if part in plain), None)
