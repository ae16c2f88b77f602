from __future__ import annotations

import subprocess
import sys

from typer.testing import CliRunner

import outrider
from outrider.cli.main import app


def test_version_is_the_version_of_the_package() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"outrider {outrider.__version__}\n")


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(app, ["write"])
    assert result.exit_code == 2
    assert "No such command 'write'" in result.stderr


def test_help_loads_no_model_library() -> None:
    script = (
        "import sys, outrider.cli.main as m, typer.testing as t\n"
        "assert t.CliRunner().invoke(m.app, ['generate', '--help']).exit_code == 0\n"
        "sys.exit(sum(name in sys.modules for name in ('torch', 'transformers', 'tokenizers')))\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_module_is_the_command_line() -> None:
    words = [sys.executable, "-m", "outrider", "--version"]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, f"outrider {outrider.__version__}\n")
