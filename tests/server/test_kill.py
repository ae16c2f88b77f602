"""A server that is killed in the middle of its work starts again as if it had never been."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from serving import COMPLETIONS, CONTEXT, MODEL, PATIENCE_S, byte_level_tokenizer, load_tiny

from support.tiny import tiny_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return where the tiny model is stored, as a user would have one."""
    model = tiny_model(vocab_size=257, max_position_embeddings=CONTEXT)
    model.save_pretrained(tmp_path / "model")
    byte_level_tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path


@contextmanager
def server(folder: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a server in a process, which ends with the body; yields it and its port."""
    command = [sys.executable, "-m", "outrider", "serve", "--target", str(folder / "model")]
    command += ["--name", MODEL, "--drafter", "suffix", "--port", str(port)]
    environment = os.environ | {"OUTRIDER_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    log = folder / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.match(r"listening on http://127\.0\.0\.1:(\d+) ", line)
            assert found is not None, log.read_text()
            yield process, int(found[1])
        finally:
            process.kill()


def test_a_server_that_was_killed_starts_again_on_its_port_and_says_the_same(folder: Path) -> None:
    body = {"model": MODEL, "prompt": "once upon", "max_tokens": 20}
    expected = load_tiny("none").generate("once upon", max_new_tokens=20).text
    with server(folder) as (process, port):
        url = f"http://127.0.0.1:{port}"
        streamed = body | {"stream": True, "max_tokens": 150, "n": 4}
        with httpx2.stream(
            "POST", f"{url}{COMPLETIONS}", json=streamed, timeout=PATIENCE_S
        ) as stream:
            lines = stream.iter_lines()
            next(lines)
            process.send_signal(signal.SIGKILL)
            assert process.wait(PATIENCE_S) == -signal.SIGKILL
            with pytest.raises(httpx2.TransportError):
                list(lines)
    before = sorted(path.relative_to(folder) for path in (folder / "cache").rglob("*"))
    with server(folder, port):
        answer = httpx2.post(f"{url}{COMPLETIONS}", json=body, timeout=PATIENCE_S)
        assert answer.json()["choices"][0]["text"] == expected
        metrics = httpx2.get(f"{url}/metrics", timeout=PATIENCE_S).text
        assert "outrider_submitted_total 1.0" in metrics
    after = sorted(path.relative_to(folder) for path in (folder / "cache").rglob("*"))
    assert after == before, "what the first start left, the second would not have needed"
