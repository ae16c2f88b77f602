"""Where vLLM is, and what its Python is shown of outrider."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from outrider.errors import LoadError, OptionError
from outrider.scale import environment as looking
from outrider.scale.environment import find_vllm, package_folder
from support.vllm import make_vllm

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="vLLM does not run there")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OUTRIDER_PEERS", str(tmp_path / "peers"))


def test_vllm_is_found_where_peers_are(tmp_path: Path) -> None:
    python = make_vllm(tmp_path / "peers" / "vllm" / "bin")
    found = find_vllm()
    assert (found.python, found.version, found.is_cpu) == (python, "0.32.0", True)


def test_what_a_build_computes_on_shows_in_its_name(tmp_path: Path) -> None:
    assert not find_vllm(make_vllm(tmp_path / "a", name="vllm")).is_cpu
    assert find_vllm(make_vllm(tmp_path / "b", name="vllm", version="0.32.0+cpu")).is_cpu


def test_without_vllm_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "find_environment", lambda name, module: None)
    with pytest.raises(LoadError, match=r"^vLLM is not installed; install it with: .* vllm==0\.32"):
        find_vllm()


def test_a_python_that_is_named_is_taken_or_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="vllm-python is 'gone'; there is no such file"):
        find_vllm(Path("gone"))
    bare = make_vllm(tmp_path / "bare", version=None)
    with pytest.raises(OptionError, match="has no vLLM"):
        find_vllm(bare)
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(OptionError, match="does not run"):
        find_vllm(broken)


def test_another_python_sees_outrider_and_nothing_beside_it() -> None:
    folder = package_folder()
    assert package_folder() == folder
    assert [path.name for path in folder.iterdir()] == ["outrider"]
    script = "import outrider.scale.proposer; print(outrider.__file__)"
    told = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {script}"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert Path(told.strip()).parent.parent == folder
