"""What every adapter speaks: one JSON document a line, a request on stdin and a reply on stdout.

`load` comes first, then any number of `decode`; the end of stdin ends the process. A reply holds
what was asked for, or `error`. Whatever the peer itself prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any


@dataclass(frozen=True)
class Settings:
    """What a peer is loaded with."""

    model: str
    """A folder or a file, in the peer's own form."""
    mode: str
    weights: str
    threads: int
    context: int
    """Most tokens of a prompt and its answer."""
    batch: int
    """Most prompts decoded together."""
    eos_token_ids: tuple[int, ...] = ()
    draft_model: str | None = None
    head: str | None = None
    """The folder of an EAGLE-3 head in the speculators format."""
    device: str = "cpu"


@dataclass(frozen=True)
class Job:
    """Prompts to decode together, and how.

    A temperature of 0 is greedy. Nothing else shapes what is sampled, whatever the model's own
    configuration asks for. The prompt at place i has the seed `seed` + i, where each has its own.
    """

    prompts: tuple[tuple[int, ...], ...]
    max_new_tokens: int
    seed: int
    temperature: float

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken each time."""
        return self.temperature == 0


@dataclass(frozen=True)
class Counts:
    """What drafting did, as far as the peer tells: summed over the prompts."""

    rounds: int
    proposed: int
    accepted: int


@dataclass(frozen=True)
class Answers:
    """Ids of every answer, an end of text included, and the seconds of all together."""

    ids: list[list[int]]
    seconds: float
    counts: Counts | None = None


class Peer(ABC):
    """A peer that was loaded."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Return the releases that took part, by package."""

    @abstractmethod
    def decode(self, job: Job) -> Answers:
        """Decode the prompts; the seconds are those of generation alone."""

    def device_memory(self) -> int | None:
        """Return the most bytes held on a device with memory of its own."""
        return None


def serve(load: Callable[[Settings], Peer]) -> None:
    """Answer requests until stdin ends."""
    replies = take_stdout()
    peer: Peer | None = None
    for line in sys.stdin:
        request = json.loads(line)
        what = request.pop("do")
        try:
            if what == "load":
                peer = load(_settings(request))
                reply: dict[str, Any] = {"versions": peer.versions()}
            else:
                assert peer is not None, "decode comes after load"
                reset_peak_memory()
                reply = _decode(peer, request)
            reply["memory"] = peer.device_memory() or peak_memory()
        except Exception as error:  # noqa: BLE001  whatever the peer raises is told
            traceback.print_exc()
            reply = {"error": describe(error)}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def cut_at_end(ids: Sequence[int], eos_token_ids: Sequence[int]) -> list[int]:
    """Return the ids up to the first end of text, that one included."""
    for index, token in enumerate(ids):
        if token in eos_token_ids:
            return list(ids[: index + 1])
    return list(ids)


def describe(error: BaseException) -> str:
    """Return an error as one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def reset_peak_memory() -> None:
    """Begin to measure the peak anew, where the system can: what loading took is no part of it."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as refs:
            refs.write("5")
    except OSError:  # another system, or not allowed: the peak is that of the process's life
        return


def peak_memory() -> int | None:
    """Return the most bytes of main memory this process held since it was reset."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    # What `getrusage` tells begins, on Linux, with what the parent held: only second best.
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def take_stdout() -> IO[str]:
    """Keep stdout for replies; what else is printed, by C++ too, goes to stderr."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return replies


def _settings(request: dict[str, Any]) -> Settings:
    return Settings(**(request | {"eos_token_ids": tuple(request["eos_token_ids"])}))


def _decode(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    prompts = tuple(tuple(prompt) for prompt in request.pop("prompts"))
    found = peer.decode(Job(prompts, **request))
    counts = None if found.counts is None else asdict(found.counts)
    return {"answers": found.ids, "seconds": found.seconds, "counts": counts}
