"""A peer as a runner of a benchmark: a process of its own that is asked for answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from outrider.bench.base import Case, Counters, Decoded, Runner
from outrider.bench.peers.environment import PeerError, find_python
from outrider.bench.peers.facts import Facts, read_facts
from outrider.bench.peers.kinds import PeerKind, find_kind
from outrider.bench.peers.process import PeerProcess, adapter_command
from outrider.bench.peers.weights import PeerFiles, prepare_files
from outrider.types import TokenIds

T = TypeVar("T")

LOAD_S = 1800.0
DECODE_S = 1800.0
_DRAFT_ROOM = 32
"""Tokens of context beside a prompt and its answer: drafts near the end need room, too."""


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """What a peer is run with, beside its case."""

    target: str
    draft_model: str | None = None
    head: str | None = None
    """The folder of an EAGLE-3 head; None: the one that comes with outrider for the target."""
    python: Path | None = None
    threads: int | None = None
    """None: as many as PyTorch computes with here."""
    context: int | None = None
    """Most tokens of a prompt and its answer; None: all that the model can, up to 4096."""
    device: str = "cpu"
    log_folder: Path | None = None
    """Where what it prints is kept; None: nowhere, but for the last line in errors."""


class PeerRunner(Runner):
    """Decodes with a peer; checks that its answers are answers."""

    def __init__(self, case: Case, options: PeerOptions) -> None:
        self.case = case
        self._kind = find_kind(case.engine)
        self._kind.mode(case.drafter)
        self._options = options
        self._facts: Facts | None = None
        self._process: PeerProcess | None = None
        self._versions: dict[str, str] = {}
        self._peak: int | None = None

    def start(self) -> None:
        if self._process is not None:
            return
        options = self._options
        _check_device(self._kind, options.device)
        python = find_python(self._kind, options.python)
        self._facts = read_facts(options.target, options.context)
        files = prepare_files(
            self._kind,
            self.case.drafter,
            self.case.weights,
            python=python,
            target=options.target,
            draft_model=options.draft_model,
            head=options.head,
        )
        threads = _own_threads() if options.threads is None else options.threads
        self._process = PeerProcess(
            f"{self.case.engine} {self.case.drafter}",
            adapter_command(python, self._kind.adapter),
            environment=_environment(threads, self._cache_bytes()),
            log=self._log_path(),
        )
        reply = self._process.ask(self._load_request(files, threads), LOAD_S)
        self._versions = dict(_expect(reply, "versions", dict, self._process.name))
        self._note_memory(reply)

    def decode(self, prompts: Sequence[TokenIds], *, max_new_tokens: int, seed: int) -> Decoded:
        assert self._process is not None, "start comes first"
        request = {
            "do": "decode",
            "prompts": [list(prompt) for prompt in prompts],
            "max_new_tokens": max_new_tokens,
            "seed": seed,
            "temperature": self.case.temperature,
        }
        reply = self._process.ask(request, DECODE_S)
        name = self._process.name
        answers = _expect(reply, "answers", list, name)
        seconds = _expect(reply, "seconds", float, name)
        self._check(answers, len(prompts), max_new_tokens)
        self._note_memory(reply)
        counts = reply.get("counts")
        counters = None if counts is None else Counters(**counts)
        return Decoded(tuple(map(tuple, answers)), seconds, counters)

    def peak_memory(self) -> int | None:
        return self._peak

    def versions(self) -> dict[str, str]:
        return dict(self._versions)

    def close(self) -> None:
        if self._process is not None:
            self._process.close()

    def _check(self, answers: list[Any], prompts: int, most: int) -> None:
        """Refuse answers that cannot be: of another number, length, or with ids that are none."""
        assert self._facts is not None and self._process is not None
        if len(answers) != prompts:
            raise PeerError(
                f"{self._process.name} gave {len(answers)} answers to {prompts} prompts"
            )
        for answer in answers:
            problem = self._facts.problem(answer, most)
            if problem is not None:
                raise PeerError(f"{self._process.name} gave a wrong answer: {problem}")

    def _load_request(self, files: PeerFiles, threads: int) -> dict[str, Any]:
        assert self._facts is not None
        return asdict(files) | {
            "do": "load",
            "mode": self.case.drafter,
            "weights": self.case.weights,
            "threads": threads,
            "context": self._facts.context + _DRAFT_ROOM,
            "batch": self.case.batch,
            "eos_token_ids": list(self._facts.eos_token_ids),
            "device": self._options.device,
        }

    def _cache_bytes(self) -> int:
        """Return the bytes of keys and values that all sequences of the case come to."""
        assert self._facts is not None
        return self._facts.bytes_per_token * self._facts.context * self.case.batch

    def _note_memory(self, reply: Mapping[str, Any]) -> None:
        memory = reply.get("memory")
        if isinstance(memory, int):
            self._peak = max(memory, self._peak or 0)

    def _log_path(self) -> Path | None:
        if self._options.log_folder is None:
            return None
        case = self.case
        words = (
            case.engine,
            case.drafter,
            case.weights,
            f"t{case.temperature:g}",
            f"b{case.batch}",
        )
        return self._options.log_folder / f"{'-'.join(words)}.log"


def _own_threads() -> int:
    import torch

    return torch.get_num_threads()


def _check_device(kind: PeerKind, device: str) -> None:
    if device != "cpu" and not kind.has_devices:
        raise PeerError(f"{kind.name} is compared on a CPU only, not on {device}")


def _environment(threads: int, cache_bytes: int) -> dict[str, str]:
    """Return the variables of a peer's process: its threads, and no network."""
    number = str(threads)
    return {
        "OMP_NUM_THREADS": number,
        "MKL_NUM_THREADS": number,
        "OPENBLAS_NUM_THREADS": number,
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
        # In this very process, without threads bound to cores: as with the others.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": str(max(1, math.ceil(cache_bytes / 2**30))),
    }


def _expect(reply: Mapping[str, Any], key: str, kind: type[T], name: str) -> T:
    """Return what a reply must hold; raises PeerError."""
    value = reply.get(key)
    if not isinstance(value, kind):
        raise PeerError(f"{name} replied without {key}")
    return value


def build_peer(
    case: Case,
    *,
    target: str,
    draft_model: str | None = None,
    head: str | None = None,
    python: Path | None = None,
    threads: int | None = None,
    context: int | None = None,
    device: str = "cpu",
    log_folder: Path | None = None,
) -> PeerRunner:
    """Return the runner of a peer's case; see PeerOptions. Nothing is loaded before it starts.

    Raises OptionError for a case that no peer has.
    """
    options = PeerOptions(
        target=target,
        draft_model=draft_model,
        head=head,
        python=python,
        threads=threads,
        context=context,
        device=device,
        log_folder=log_folder,
    )
    return PeerRunner(case, options)
