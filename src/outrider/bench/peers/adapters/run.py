"""Starts an adapter: `python run.py NAME`, with the Python of the peer's environment.

The folder is made a package here, since outrider is not installed there, and a folder on the search
path would hide packages of the same names as its files.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path


def main(name: str) -> None:
    """Run the adapter of that name until it is told to end."""
    folder = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != folder]
    spec = importlib.util.spec_from_file_location(
        "adapters", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["adapters"] = package
    spec.loader.exec_module(package)
    importlib.import_module(f"adapters.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1])
