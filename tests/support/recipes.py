"""The recipes of `benchmarks/` as modules, for the length of a test."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@contextmanager
def recipe_module(name: str) -> Iterator[Any]:
    """Import a recipe, and forget it and what it imported from beside it with the body's end."""
    before, path = set(sys.modules), list(sys.path)
    sys.path.insert(0, str(_BENCHMARKS))
    try:
        yield importlib.import_module(name)
    finally:
        sys.path[:] = path
        for other in set(sys.modules) - before:
            if Path(getattr(sys.modules[other], "__file__", None) or "/").parent == _BENCHMARKS:
                del sys.modules[other]
