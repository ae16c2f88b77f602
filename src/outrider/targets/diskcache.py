"""Folders that are made once and kept: the results of slow conversions.

An entry is built in a temporary folder beside its place and moved there whole, so that readers
see all of it or nothing. A manifest, written last, holds the size of every file (and the digest
of the small ones); an entry that does not match its manifest is built again, never trusted.
Processes may work on the same entry at once: each builds its own, and the first one moved stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from outrider.errors import LoadError

_MANIFEST = "outrider-manifest.json"
_DIGEST_LIMIT = 32 * 2**20
"""Files up to this many bytes are checked by digest as well as by size."""

_ABANDONED_S = 24 * 3600.0
"""A build folder untouched for this long was left by a process that was killed."""


def cache_directory() -> Path:
    """Return $OUTRIDER_CACHE, or the `outrider` folder in the platform's place for caches."""
    chosen = os.environ.get("OUTRIDER_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):
        return Path(xdg) / "outrider"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "outrider"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "outrider"
    return Path.home() / ".cache" / "outrider"


def cached_folder(name: str, build: Callable[[Path], None]) -> Path:
    """Return the intact cache entry `name`; `build` fills an empty folder if there is none.

    Raises LoadError if the cache cannot be written; what `build` raises passes through, and
    leaves nothing behind.
    """
    root = cache_directory()
    entry = root / name
    if is_intact(entry):
        return entry
    try:
        root.mkdir(parents=True, exist_ok=True)
        _sweep(root, name)
        workshop = tempfile.TemporaryDirectory(
            prefix=f".{name}.", dir=root, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise _unwritable(root, error) from error
    with workshop as temporary:
        built = Path(temporary) / "built"
        built.mkdir()
        build(built)
        _write_manifest(built)
        _move_into_place(built, entry, discard=Path(temporary) / "damaged")
    return entry


@contextlib.contextmanager
def one_at_a_time(work: str, on_waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Keep other processes out of work whose intermediate files they would share.

    `on_waiting` is called if another process is at it. Raises LoadError if the cache cannot be
    written.
    """
    root = cache_directory()
    lock = FileLock(root / f".{work}.lock")
    try:
        root.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            on_waiting()
            lock.acquire()
    except OSError as error:
        raise _unwritable(root, error) from error
    try:
        yield
    finally:
        lock.release()


def _unwritable(root: Path, error: OSError) -> LoadError:
    return LoadError(
        f"cannot write to the cache folder {root}: {error.strerror or error} "
        "(set OUTRIDER_CACHE to another folder)"
    )


def intact_entry(name: str) -> Path | None:
    """Return the cache entry `name` if there is one, whole; builds nothing."""
    entry = cache_directory() / name
    return entry if is_intact(entry) else None


def is_intact(entry: Path) -> bool:
    """Whether the folder holds exactly what its manifest says."""
    try:
        manifest = json.loads((entry / _MANIFEST).read_text(encoding="utf-8"))
        return bool(manifest == _describe(entry))
    except (OSError, ValueError):
        return False


def _sweep(root: Path, name: str) -> None:
    """Remove what killed builds of this entry have left behind."""
    for path in root.glob(f".{name}.*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(path, ignore_errors=True)


def _move_into_place(built: Path, entry: Path, *, discard: Path) -> None:
    """Rename `built` to `entry`, unless another process has just put an intact one there."""
    if entry.exists() and not is_intact(entry):
        # Another process may have thrown the damaged entry away first.
        with contextlib.suppress(FileNotFoundError):
            os.rename(entry, discard)
    try:
        os.rename(built, entry)
    except OSError as error:
        if not is_intact(entry):
            raise LoadError(f"cannot put {entry} in place: {error.strerror or error}") from error


def _write_manifest(folder: Path) -> None:
    (folder / _MANIFEST).write_text(json.dumps(_describe(folder), indent=1), encoding="utf-8")


def _describe(folder: Path) -> dict[str, dict[str, Any]]:
    """Return size, and digest if small, of every file in the folder but the manifest."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != _MANIFEST:
            size = path.stat().st_size
            digest = file_digest(path) if size <= _DIGEST_LIMIT else None
            files[path.relative_to(folder).as_posix()] = {"size": size, "sha256": digest}
    return files


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
