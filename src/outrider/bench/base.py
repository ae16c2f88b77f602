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
    lossy: str = ""
    """The lossy rule that verifies in place of the rule, if one does."""
    model: str = ""
    """What decodes in the target's place, as the user called it; "" is the target itself."""

    @property
    def label(self) -> str:
        """Who decodes, and how: without temperature and batch, which are columns of their own."""
        engine = "" if self.engine == OWN else f"{self.engine} "
        model = f"{self.model}: " if self.model else ""
        rule = "" if self.rule == "match" else f" ({self.rule})"
        lossy = f" (lossy {self.lossy})" if self.lossy else ""
        weights = "" if self.weights in ("float32", self.model) else f" {self.weights}"
        return f"{engine}{model}{self.drafter}{rule}{lossy}{weights}"

    @property
    def held(self) -> str:
        """The weights that outrider decodes with: their type, and of which model if of another."""
        return name_weights(self.model, self.weights)

    @property
    def changes_answer(self) -> bool:
        """Whether what is written is not what the target says: nothing is promised of it."""
        return bool(self.lossy or self.model)


def name_weights(model: str, weights: str) -> str:
    """Return what weights are called: by their type, and by their model if it is not the target."""
    return weights if model in ("", weights) else f"{model} {weights}"


@dataclass(frozen=True, slots=True)
class PassCount:
    """Passes of the target over as many sequences and rows, those that read a prompt aside."""

    sequences: int
    rows: int
    """Rows the model computed, all sequences together, padding included."""
    count: int
    attended: float
    """Context tokens that the rows looked at, over all these passes."""
    seconds: float

    @property
    def context(self) -> float:
        """Tokens of context that a row looked at, on average."""
        return self.attended / self.count / self.rows


@dataclass(frozen=True, slots=True)
class Counters:
    """What outrider counted while it decoded; peers tell as much of it as they know.

    Times are seconds; the counts by depth are of depth 1, 2, ... (see `engine.stats.Stats`).
    Rounds are those of requests: a pass over four of them is a round of each.
    """

    rounds: int = 0
    drafts: int = 0
    """Rounds in which a draft was scored."""
    levels: int = 0
    """Depths of these drafts, added up: of chains, the drafted tokens."""
    proposed: int = 0
    accepted: int = 0
    proposed_at: tuple[int, ...] = ()
    attempted_at: tuple[int, ...] = ()
    accepted_at: tuple[int, ...] = ()
    prefill_s: float = 0.0
    draft_s: float = 0.0
    score_s: float = 0.0
    host_s: float = 0.0
    passes: tuple[PassCount, ...] = ()


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
    peak_memory: int | None = None
    """The most bytes that were held until then, if known."""
    run: int = 0
    """Which start of the command made it: 0 the first, 1 after one interruption, ..."""


class Runner(ABC):
    """Decodes prompts in one case. Made ready once, then asked in turns with others."""

    case: Case

    @property
    def is_ready(self) -> bool:
        """Whether it can decode, once it was started: a process may have ended meanwhile."""
        return True

    @abstractmethod
    def start(self) -> None:
        """Load what is needed; raises OutriderError, which fails this case and no other."""

    @abstractmethod
    def decode(self, prompts: Sequence[TokenIds], *, max_new_tokens: int, seed: int) -> Decoded:
        """Decode prompts together, at most `case.batch` of them; the device is idle afterwards."""

    @abstractmethod
    def peak_memory(self) -> int | None:
        """Return the most bytes the process (or its device) held so far, None if unknown."""

    def versions(self) -> dict[str, str]:
        """Return the versions of a peer's programs once it has started, by their names."""
        return {}

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

    Tokens and seconds are those of all repeats. Rates are totals over totals, prompts included.
    Speedups are over outrider's plain decoding of the same weights, temperature and batch, repeat
    by repeat; for peers see `own_speedup`.
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
    """Prompts whose ids equal plain decoding's over the whole length, in every repeat; of peers,
    outrider's plain decoding's where the weights are the same."""
    compared: int = 0
    """Prompts that were compared with plain decoding; 0 where equal tokens are not promised."""
    differences: tuple[str, ...] = ()
    acceptance_length: float | None = None
    """tau: tokens a round of a request, the recovered or bonus token included."""
    acceptance_rate: float | None = None
    """alpha: share of the proposed tokens that were accepted."""
    conditional_acceptance: tuple[float, ...] = ()
    """Accepted over tried at depth 1, 2, ...: a token is tried if its parent was accepted."""
    drafted_share: float | None = None
    """Share of the rounds in which a draft was scored."""
    draft_tokens: float | None = None
    """Tokens of such a draft, on average."""
    draft_depth: float | None = None
    """Levels of such a draft, on average: of a chain, its tokens."""
    prefill_s: float | None = None
    draft_s: float | None = None
    score_s: float | None = None
    host_s: float | None = None
    cost_ratio: float | None = None
    """c: seconds of drafting for each level of a draft, over seconds of a pass that drafts
    nothing."""
    bound: float | None = None
    """tau / (T_draft + T_score), the prompt's pass included: tokens a second were the host free."""
    share_of_bound: float | None = None
    """Tokens a second over `bound`."""
    leviathan: float | None = None
    """Speedup that acceptance by level, c and the depth of drafts foretell (Leviathan et al. 2022,
    theorem 3.8), where scoring costs no more than one row and prompts and the host nothing."""
    predicted: float | None = None
    """Speedup that the measured costs and acceptance foretell (see `forecast`)."""
    peak_memory: int | None = None
    """Bytes; all of outrider's cases share one process, and with it the weights of drafters."""
    why: str = ""
    """What limits the speedup, in words."""
    weight_bytes: int | None = None
    """Bytes of the model's own weights, where others stand beside it."""
    over_original: Spread | None = None
    """Of a case that changes the answer: speedup over plain decoding of the target itself."""
    differing: float | None = None
    """Share of its tokens that are not those of the target's plain decoding at their place."""
    log_likelihood: float | None = None
    """Of a token of its answers, on average, in nats: by the target itself, without options."""
    plain_log_likelihood: float | None = None
    """The same of the target's plain decoding."""
    divergence: float | None = None
    """Of another model: mean KL divergence from the target's distributions, in nats, after the
    same prefixes: all those of the target's own answers."""
    same_choice: float | None = None
    """Of another model: share of these prefixes after which the same token is the likeliest."""


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
    computed: int = 0
    """Rows the model computed in all, padding included."""
    model: str = ""
    """What stands in the target's place, as in `Case`."""

    @property
    def held(self) -> str:
        """The weights the passes are of, as in `Case`."""
        return name_weights(self.model, self.weights)


@dataclass(frozen=True, slots=True)
class Judged:
    """What the target thinks of the answers of a record: the log-likelihood of each, in nats."""

    case: Case
    repeat: int
    task: str
    prompts: tuple[str, ...]
    log_likelihoods: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Divergence:
    """How far a model's distributions lie from the target's, over all prefixes of an answer."""

    model: str
    prompt: str
    tokens: int
    nats: float
    """KL divergences, added up."""
    same_choice: int
    """Prefixes after which both hold the same token for the likeliest."""


@dataclass(frozen=True, slots=True)
class HeldWeights:
    """The weights of one of outrider's models, and their size."""

    model: str
    weights: str
    bytes: int


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
    """Of the peers that ran, and "torch (vllm)" of the libraries each of them has."""
    notes: tuple[str, ...] = ()
    """What a reader must know, such as that time ran out."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)
