"""A peer as a runner of a benchmark: it is asked for answers, which are checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outrider.bench.base import Case, Counters, Decoded, Runner
from outrider.bench.peers.environment import PeerError
from outrider.bench.peers.loaded import LoadedPeer, expect
from outrider.types import TokenIds


class PeerRunner(Runner):
    """Decodes with a peer, whose process it may share; checks that its answers are answers."""

    def __init__(self, case: Case, peer: LoadedPeer) -> None:
        self.case = case
        self._peer = peer
        self._peak: int | None = None

    @property
    def is_ready(self) -> bool:
        return self._peer.is_alive

    def start(self) -> None:
        self._peer.use(self)

    def decode(self, prompts: Sequence[TokenIds], *, max_new_tokens: int, seed: int) -> Decoded:
        request = {
            "do": "decode",
            "prompts": [list(prompt) for prompt in prompts],
            "max_new_tokens": max_new_tokens,
            "seed": seed,
            "temperature": self.case.temperature,
        }
        reply = self._peer.ask(request)
        answers = expect(reply, "answers", list, self._peer.name)
        seconds = expect(reply, "seconds", float, self._peer.name)
        self._check(answers, len(prompts), max_new_tokens)
        memory = reply.get("memory")
        if isinstance(memory, int):
            self._peak = max(memory, self._peak or 0)
        counts = reply.get("counts")
        counters = None if counts is None else Counters(**counts)
        return Decoded(tuple(map(tuple, answers)), seconds, counters)

    def peak_memory(self) -> int | None:
        return self._peak

    def versions(self) -> dict[str, str]:
        return dict(self._peer.versions)

    def close(self) -> None:
        self._peer.release(self)

    def _check(self, answers: list[Any], prompts: int, most: int) -> None:
        """Refuse answers that cannot be: of another number, length, or with ids that are none."""
        if len(answers) != prompts:
            raise PeerError(f"{self._peer.name} gave {len(answers)} answers to {prompts} prompts")
        for answer in answers:
            problem = self._peer.facts.problem(answer, most)
            if problem is not None:
                raise PeerError(f"{self._peer.name} gave a wrong answer: {problem}")
