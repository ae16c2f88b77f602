"""Trained drafters in the form that other programs load, made once and kept in the cache."""

from __future__ import annotations

import hashlib
from pathlib import Path

from outrider.targets.diskcache import cached_folder

_REVISION = 1


def export_head(head: str | None, target: str, *, trust_remote_code: bool = False) -> Path:
    """Return the folder of an EAGLE-3 head in the speculators format.

    `head` None is the one that comes with outrider for the target. Raises OptionError for a head
    that the format has no word for, LoadError for one that cannot be read or does not fit.
    """
    from outrider.bundled import bundled_head
    from outrider.checkpoints.read import find_folder, load_head
    from outrider.checkpoints.write import write_checkpoint
    from outrider.targets.loading import load_config

    folder = bundled_head("eagle", target) if head is None else find_folder(head)
    config = load_config(target, trust_remote_code=trust_remote_code)
    checkpoint = load_head(str(folder), "eagle", config).for_target(target)

    def build(entry: Path) -> None:
        write_checkpoint(checkpoint, "speculators", entry / "head", config)

    name = f"speculators-{fingerprint(folder, target)}-r{_REVISION}"
    return cached_folder(name, build) / "head"


def export_draft_model(draft: str, target: str, *, trust_remote_code: bool = False) -> Path:
    """Return the folder of a draft model with its target's embeddings and output layer in it.

    `draft` names one in our own format. Raises LoadError for one that cannot be read or does not
    fit, OptionError for a target whose output layer is quantised.
    """
    from outrider.checkpoints.read import find_folder, load_head
    from outrider.checkpoints.whole import write_whole
    from outrider.targets.loading import load_config, load_model

    folder = find_folder(draft)
    config = load_config(target, trust_remote_code=trust_remote_code)
    checkpoint = load_head(str(folder), "draft", config).for_target(target)

    def build(entry: Path) -> None:
        loaded = load_model(target, device="cpu", trust_remote_code=trust_remote_code)
        write_whole(checkpoint, loaded, entry / "model")

    name = f"draft-{fingerprint(folder, target)}-r{_REVISION}"
    return cached_folder(name, build) / "model"


def fingerprint(path: Path, *more: str) -> str:
    """Return a name that changes with a file or the files of a folder, by size and time."""
    files = [path] if path.is_file() else sorted(path.glob("*"))
    stamps = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    described = repr((str(path), stamps, more))
    return hashlib.sha256(described.encode()).hexdigest()[:16]
