"""Whether vLLM, as `outrider serve --engine vllm` starts it, says with each drafter what it says
without.

Each server in turn writes greedy answers in float32 to a few prompts, on the loopback interface.
Answers must be the token ids of the server without a drafter, and some drafts must have been
accepted. Exit code 1 if not. The last line is one JSON document. Nothing is timed.

Run: python benchmarks/scale.py [--drafters eagle,ngram,model,suffix] [--target MODEL]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from common import cut_model

PROMPTS = (
    "List: ash, oak, elm, fir, ash, oak, elm, fir, ash, oak,",
    "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n",
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is",
)
HOST = "127.0.0.1"
LOADING_S = 600.0
ENDING_S = 90.0
ANSWER_S = 300.0
_OUTRIDER = "from outrider.cli.main import main; main()"
_COUNTER = re.compile(r"^vllm:spec_decode_num_(drafts|draft_tokens|accepted_tokens)_total\S* (\S+)")


@dataclass(frozen=True)
class Outcome:
    """What one server answered, and what its counters say of drafts."""

    drafter: str
    ids: list[list[int]]
    drafts: int
    proposed: int
    accepted: int
    exit_code: int
    """Of the server, after SIGTERM."""

    def __str__(self) -> str:
        return (
            f"{self.drafter}: {sum(map(len, self.ids))} tokens, {self.accepted} of "
            f"{self.proposed} drafted tokens accepted in {self.drafts} drafts"
        )

    def problems(self, plain: Outcome) -> list[str]:
        """Say what is wrong with it, next to a server without drafts."""
        found = [
            f"{self.drafter}: prompt {place} has other token ids"
            for place, (ours, theirs) in enumerate(zip(self.ids, plain.ids, strict=True))
            if ours != theirs
        ]
        if self is not plain and not self.accepted:
            found.append(f"{self.drafter}: no draft was accepted")
        if self.exit_code:
            found.append(f"{self.drafter}: the server ended with exit code {self.exit_code}")
        return found


def run_drafter(drafter: str, arguments: argparse.Namespace, log: Path) -> Outcome:
    """Start a server with a drafter, let it answer, and end it."""
    port = _free_port()
    command = [
        *(sys.executable, "-c", _OUTRIDER, "serve", "--engine", "vllm"),
        *("--target", arguments.target, "--drafter", drafter, "--dtype", "float32"),
        *("--host", HOST, "--port", str(port), "--no-compile", "--max-batch", "4"),
        *("--drain-seconds", "10", "--", "--max-model-len", "1024"),
    ]
    with _served(command, port, log) as process:
        ids = [_answer(port, prompt, arguments) for prompt in PROMPTS]
        counted = _counted(port)
        process.terminate()
        code = process.wait(ENDING_S)
    return Outcome(
        drafter.partition(":")[0],
        ids,
        counted.get("drafts", 0),
        counted.get("draft_tokens", 0),
        counted.get("accepted_tokens", 0),
        code,
    )


@contextmanager
def _served(command: Sequence[str], port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    variables = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    variables.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=variables)
    try:
        _wait(process, port, log)
        yield process
    finally:
        if process.poll() is None:
            process.terminate()  # a second signal ends all at once
            process.terminate()
            process.wait(ENDING_S)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + LOADING_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            tail = log.read_text(errors="replace")[-2000:]
            raise SystemExit(f"the server ended with exit code {process.returncode}:\n{tail}")
        try:
            with urlopen(f"http://{HOST}:{port}/health", timeout=5):
                return
        except (URLError, OSError):
            time.sleep(1)
    raise SystemExit(f"the server was not ready after {LOADING_S:g} s; see {log}")


def _answer(port: int, prompt: str, arguments: argparse.Namespace) -> list[int]:
    body = {
        "model": arguments.target,
        "prompt": prompt,
        "temperature": 0,
        "max_tokens": arguments.max_new_tokens,
        "return_token_ids": True,
    }
    request = Request(
        f"http://{HOST}:{port}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urlopen(request, timeout=ANSWER_S) as response:
        answer: dict[str, Any] = json.load(response)
    return list(answer["choices"][0]["token_ids"])


def _counted(port: int) -> dict[str, int]:
    with urlopen(f"http://{HOST}:{port}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    found = [match for line in lines if (match := _COUNTER.match(line))]
    return {match[1]: int(float(match[2])) for match in found}


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        return int(taken.getsockname()[1])


def main() -> None:
    """Run all servers in turn and compare them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--drafters", default="eagle,ngram,model,suffix")
    parser.add_argument("--max-new-tokens", type=int, default=40)
    parser.add_argument("--layers", type=int, default=24, help="of the draft model cut from it")
    arguments = parser.parse_args()
    problems: list[str] = []
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        for drafter in ("none", *arguments.drafters.split(",")):
            spec = drafter
            if drafter == "model":
                spec = f"model:{cut_model(arguments.target, arguments.layers, Path(folder))}"
            outcome = run_drafter(spec, arguments, Path(folder) / f"{drafter}.log")
            outcomes.append(outcome)
            found = outcome.problems(outcomes[0])
            problems += found
            print(f"{outcome}; {'; '.join(found) or 'the same token ids'}", flush=True)
    print(json.dumps({"problems": problems, "outcomes": [asdict(one) for one in outcomes]}))
    raise SystemExit(1 if problems else 0)


if __name__ == "__main__":
    main()
