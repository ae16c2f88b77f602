"""A peer that is loaded: a process with a mode's weights, which all cases of that mode share.

Temperatures and batches are told with each request, so that a process that took minutes to load
serves them all. Between its turns it is stopped (see `process`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from outrider.bench.base import Case
from outrider.bench.peers.environment import PeerError, find_python
from outrider.bench.peers.facts import Facts, read_facts
from outrider.bench.peers.kinds import PeerKind, find_kind
from outrider.bench.peers.process import PeerProcess, adapter_command
from outrider.bench.peers.weights import PeerFiles, prepare_files
from outrider.targets.free_memory import available_memory

T = TypeVar("T")

LOAD_S = 1800.0
DECODE_S = 1800.0
_DRAFT_ROOM = 32
"""Tokens of context beside a prompt and its answer: drafts near the end need room, too."""


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """What a peer is run with, beside its mode and weights."""

    target: str
    draft_model: str | None = None
    head: str | None = None
    """The folder of an EAGLE-3 head; None: the one that comes with outrider for the target."""
    python: Path | None = None
    threads: int | None = None
    """None: as many as PyTorch computes with here."""
    context: int | None = None
    """Most tokens of a prompt and its answer; None: all that the model can, up to 4096."""
    batch: int = 1
    """Most prompts that any of its cases decodes together."""
    device: str = "cpu"
    log_folder: Path | None = None
    """Where what it prints is kept; None: nowhere, but for the last line in errors."""


class LoadedPeer:
    """A mode of a peer with one type of weights; loaded for its first user, closed by its last."""

    def __init__(self, case: Case, options: PeerOptions) -> None:
        """`case` tells the peer, the mode and the weights. Raises OptionError if no peer has it."""
        self._mode, self._weights = case.drafter, case.weights
        self._kind = find_kind(case.engine)
        self._kind.mode(case.drafter)
        self.name = f"{case.engine} {case.drafter}"
        self._options = options
        self._facts: Facts | None = None
        self._process: PeerProcess | None = None
        self._users: set[int] = set()
        self.versions: dict[str, str] = {}

    @property
    def facts(self) -> Facts:
        """What its answers are measured by, once it was loaded."""
        assert self._facts is not None, "use comes first"
        return self._facts

    @property
    def is_alive(self) -> bool:
        """Whether it is loaded, and can be asked."""
        return self._process is not None and self._process.is_alive

    def use(self, user: object) -> None:
        """Load what is not loaded; raises OutriderError. The user releases it in the end."""
        self._users.add(id(user))
        if not self.is_alive:
            self._load()

    def release(self, user: object) -> None:
        """Let go, which ends the process unless it has other users; may be done twice."""
        self._users.discard(id(user))
        if not self._users and self._process is not None:
            self._process.close()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request; raises PeerError."""
        assert self._process is not None, "use comes first"
        return self._process.ask(request, DECODE_S)

    def _load(self) -> None:
        options = self._options
        _check_device(self._kind, options.device)
        python = find_python(self._kind, options.python)
        self._facts = read_facts(options.target, options.context)
        files = prepare_files(
            self._kind,
            self._mode,
            self._weights,
            python=python,
            target=options.target,
            draft_model=options.draft_model,
            head=options.head,
        )
        cache_bytes = self._facts.bytes_per_token * self._facts.context * options.batch
        if options.device == "cpu":
            _check_room(self.name, _bytes_of(files) + cache_bytes)
        threads = _own_threads() if options.threads is None else options.threads
        self._process = PeerProcess(
            self.name,
            adapter_command(python, self._kind.adapter),
            environment=_environment(threads, cache_bytes),
            log=self._log_path(),
        )
        reply = self._process.ask(self._load_request(files, threads), LOAD_S)
        self.versions = dict(expect(reply, "versions", dict, self.name))

    def _load_request(self, files: PeerFiles, threads: int) -> dict[str, Any]:
        return asdict(files) | {
            "do": "load",
            "mode": self._mode,
            "weights": self._weights,
            "threads": threads,
            "context": self.facts.context + _DRAFT_ROOM,
            "batch": self._options.batch,
            "eos_token_ids": list(self.facts.eos_token_ids),
            "device": self._options.device,
        }

    def _log_path(self) -> Path | None:
        if self._options.log_folder is None:
            return None
        return self._options.log_folder / f"{self._kind.name}-{self._mode}-{self._weights}.log"


def expect(reply: Mapping[str, Any], key: str, kind: type[T], name: str) -> T:
    """Return what a reply of the peer of that name must hold; raises PeerError."""
    value = reply.get(key)
    if not isinstance(value, kind):
        raise PeerError(f"{name} replied without {key}")
    return value


def _own_threads() -> int:
    import torch

    return torch.get_num_threads()


def _check_device(kind: PeerKind, device: str) -> None:
    if device != "cpu" and not kind.has_devices:
        raise PeerError(f"{kind.name} is compared on a CPU only, not on {device}")


def _check_room(name: str, needed: int) -> None:
    """Refuse to load what main memory has no room for: the system might end any process then."""
    import torch

    free = available_memory(torch.device("cpu"))
    if free < needed:
        raise PeerError(
            f"{name} needs at least {needed / 2**30:.1f} GiB of memory, and "
            f"{free / 2**30:.1f} GiB are free",
            "hold fewer peers at a time with --peer-processes",
        )


def _bytes_of(files: PeerFiles) -> int:
    """Return the bytes of weights that are loaded; what is not on this disk does not count."""
    return sum(map(_size, filter(None, (files.model, files.draft_model, files.head))))


def _size(place: str) -> int:
    path = Path(place)
    found: Iterable[Path] = [path] if path.is_file() else path.glob("*")
    return sum(one.stat().st_size for one in found if one.is_file())


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
