"""What a benchmark is made of: cases, who decodes them, records of it, and rows of a report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from outrider.machine import Machine
from outrider.types import Rule, TokenIds

OWN = "outrider"
PLAIN = "none"
ALL = "all"
"""The task that stands for the whole workload."""


@dataclass(frozen=True, slots=True)
class Case:
    """One way of decoding, of which a benchmark has one row a task."""

    drafter: str
    """A drafter's spec; of a peer the name of its mode; "none" is plain decoding."""
    engine: str = OWN
    """"outrider" or the name of a peer."""
    weights: str = "float32"
    """The type the weights are held in, such as "float32", "bfloat16", "int8" or "q8_0"."""
    temperature: float = 0.0
    batch: int = 1
    rule: Rule = "match"

    @property
    def label(self) -> str:
        """Who decodes, and how: without temperature and batch, which are columns of their own."""
        engine = "" if self.engine == OWN else f"{self.engine} "
        rule = "" if self.rule == "match" else f" ({self.rule})"
        weights = "" if self.weights == "float32" else f" {self.weights}"
        return f"{engine}{self.drafter}{rule}{weights}"


@dataclass(frozen=True, slots=True)
class Counters:
    """What outrider counted while it decoded; peers tell as much of it as they know.

    Times are seconds; the counts by depth are of depth 1, 2, ... (see `engine.stats.Stats`).
    """

    rounds: int = 0
    proposed: int = 0
    accepted: int = 0
    proposed_at: tuple[int, ...] = ()
    attempted_at: tuple[int, ...] = ()
    accepted_at: tuple[int, ...] = ()
    prefill_s: float = 0.0
    draft_s: float = 0.0
    score_s: float = 0.0
    host_s: float = 0.0
    predicted_speedup: float | None = None
    """What the cost model expected over plain decoding; None where it does not speak."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a batch of prompts came to: the ids of every answer, and the seconds of all together."""

    answers: tuple[tuple[int, ...], ...]
    seconds: float
    counters: Counters | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A batch of prompts decoded once, in one case and one repeat."""

    case: Case
    repeat: int
    task: str
    prompts: tuple[str, ...]
    """Their names."""
    decoded: Decoded


class Runner(ABC):
    """Decodes prompts in one case. Made ready once, then asked in turns with others."""

    case: Case

    @abstractmethod
    def start(self) -> None:
        """Load what is needed; raises OutriderError, which fails this case and no other."""

    @abstractmethod
    def decode(self, prompts: Sequence[TokenIds], *, max_new_tokens: int, seed: int) -> Decoded:
        """Decode prompts together, at most `case.batch` of them; the device is idle afterwards."""

    @abstractmethod
    def peak_memory(self) -> int | None:
        """Return the most bytes the process (or its device) held so far, None if unknown."""

    @abstractmethod
    def close(self) -> None:
        """Give back what was loaded; may be called at any time, and more than once."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over the repeats: the median, the lowest and the highest."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one case on one task; None is what is unknown or makes no sense there.

    Rates are totals over totals, prompts included. Speedups are over outrider's plain decoding of
    the same weights, temperature and batch; for peers see `over_peer`.
    """

    case: Case
    task: str
    prompts: int
    tokens: int
    tokens_per_second: Spread
    speedup: Spread | None = None
    own_speedup: float | None = None
    """Of a peer's mode over the same peer's plain decoding."""
    identical: int = 0
    """Prompts whose ids equal plain decoding's over the whole length; of peers, outrider's plain
    decoding's where the weights are the same."""
    compared: int = 0
    """Prompts that were compared with plain decoding; 0 where equal tokens are not promised."""
    differences: tuple[str, ...] = ()
    acceptance_length: float | None = None
    acceptance_rate: float | None = None
    conditional_acceptance: tuple[float, ...] = ()
    prefill_s: float | None = None
    draft_s: float | None = None
    score_s: float | None = None
    host_s: float | None = None
    cost_ratio: float | None = None
    """c: seconds of a draft step over seconds of a one-row pass of the target."""
    bound: float | None = None
    """tau / (T_draft + T_score): tokens a second of the rounds were the host free."""
    share_of_bound: float | None = None
    leviathan: float | None = None
    """Speedup that alpha, c and the mean length of drafts foretell (Leviathan et al. 2022,
    theorem 3.8), where scoring costs no more than one row."""
    predicted: float | None = None
    """Speedup that the measured costs and acceptance foretell."""
    peak_memory: int | None = None
    """Bytes."""
    why: str = ""
    """What limits the speedup, in words."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that could not be run, and why; `advice` is what would help, such as an install."""

    case: Case
    error: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class CostPoint:
    """Seconds of a pass of outrider's target: `rows` a sequence, `batch` sequences."""

    weights: str
    batch: int
    context: int
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Report:
    """All that a benchmark found."""

    target: str
    workload: str
    prompts: int
    tasks: tuple[str, ...]
    max_new_tokens: int
    repeats: int
    command: str
    started: str
    """ISO 8601."""
    machine: Machine
    rows: tuple[Row, ...]
    costs: tuple[CostPoint, ...] = ()
    failures: tuple[Failure, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    """Of the peers that ran."""
    notes: tuple[str, ...] = ()
    """What a reader must know, such as that time ran out."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)
