"""Files a reader sees whole: the old one or the new one, never half of one."""

from __future__ import annotations

import os
from pathlib import Path


def write_at_once(path: Path, text: str) -> Path:
    """Write a text file, replacing what is there; return its path. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return path
