"""The columns of a report's tables: what each is called, means, and shows of a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.bench.base import Row
from outrider.bench.reports.numbers import memory, number, percent, percents, speedup, spread

_DEPTHS = 4


@dataclass(frozen=True, slots=True)
class Column:
    """A column of figures. What a row does not know is an empty text."""

    header: str
    meaning: str
    """One sentence for the glossary."""
    show: Callable[[Row], str]


def _share(name: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        return percent(time_shares(row).get(name))

    return show


def time_shares(row: Row) -> dict[str, float]:
    """Return what prompt, draft, score and host are of the time that is known of; may be empty."""
    parts = {
        "prompt": row.prefill_s,
        "draft": row.draft_s,
        "score": row.score_s,
        "host": row.host_s,
    }
    known = {name: seconds for name, seconds in parts.items() if seconds is not None}
    total = sum(known.values())
    return {name: seconds / total for name, seconds in known.items()} if total > 0 else {}


TOKENS_PER_SECOND = Column(
    "tokens/s",
    "Tokens over seconds, of all prompts together, the reading of prompts included; the median of "
    "the repeats, with the lowest and the highest.",
    lambda row: spread(row.tokens_per_second, "{:.1f}"),
)
MEDIAN_RATE = Column(
    TOKENS_PER_SECOND.header,
    "The median of the repeats.",
    lambda row: f"{row.tokens_per_second.median:.1f}",
)
SPEEDUP = Column(
    "speedup",
    "Tokens per second over those of outrider's plain decoding in the same repeat, with the same "
    "weights, temperature and batch.",
    lambda row: speedup(row.speedup),
)
PREDICTED = Column(
    "predicted",
    "Speedup that the measured costs of passes and the measured acceptance foretell.",
    lambda row: speedup(row.predicted),
)
IDENTICAL = Column(
    "identical",
    "Prompts whose answers have exactly plain decoding's tokens in every repeat, of those "
    "compared; empty where equal tokens are not promised.",
    lambda row: f"{row.identical}/{row.compared}" if row.compared else "",
)
TAU = Column(
    "tau",
    "Acceptance length: tokens emitted per round, the recovered or bonus token included.",
    lambda row: number(row.acceptance_length),
)
ACCEPTED = Column(
    "accepted",
    "Acceptance rate alpha: the share of the proposed tokens that were accepted.",
    lambda row: percent(row.acceptance_rate),
)

SPEED: tuple[Column, ...] = (
    TOKENS_PER_SECOND,
    SPEEDUP,
    Column(
        "over its own",
        "Of a peer: tokens per second over those of the same peer's plain decoding.",
        lambda row: speedup(row.own_speedup),
    ),
    PREDICTED,
    IDENTICAL,
    Column(
        "memory",
        "The most memory the process, or its device, held; outrider's cases share one process.",
        lambda row: memory(row.peak_memory),
    ),
)
PARTS: tuple[Column, ...] = (
    TAU,
    ACCEPTED,
    Column(
        "drafted",
        "Share of the rounds in which a draft was scored.",
        lambda row: percent(row.drafted_share),
    ),
    Column(
        "a draft",
        "Tokens of such a draft, on average.",
        lambda row: number(row.draft_tokens, "{:.1f}"),
    ),
    Column(
        "by depth",
        f"Conditional acceptance at depths 1 to {_DEPTHS}: accepted over proposed where the token "
        "before was accepted.",
        lambda row: percents(row.conditional_acceptance[:_DEPTHS]),
    ),
    Column("prompt", "Share of the time that went into reading prompts.", _share("prompt")),
    Column("draft", "Share of the time that went into proposing.", _share("draft")),
    Column("score", "Share of the time that went into scoring.", _share("score")),
    Column(
        "host",
        "Share of the time that went into everything else: verifying, committing, emitting.",
        _share("host"),
    ),
    Column(
        "c",
        "Cost ratio: the time of drafting for each level of a draft, over that of a pass that "
        "drafts nothing.",
        lambda row: number(row.cost_ratio, "{:.2g}"),
    ),
    Column(
        "bound",
        "Tokens per second if the host took no time: tau over the time of proposing and scoring, "
        "the reading of prompts included.",
        lambda row: number(row.bound, "{:.1f}"),
    ),
    Column(
        "of bound",
        "The share of the bound that was reached.",
        lambda row: percent(row.share_of_bound),
    ),
    Column(
        "Leviathan",
        "Speedup that acceptance, c and the depth of drafts foretell if scoring cost no more than "
        "one row, and prompts and the host nothing (Leviathan et al. 2022, theorem 3.8).",
        lambda row: speedup(row.leviathan),
    ),
)
FIGURES: tuple[Column, ...] = (
    Column("prompts", "Prompts that were decoded.", lambda row: str(row.prompts)),
    Column("tokens", "Tokens that were emitted, in all repeats.", lambda row: str(row.tokens)),
    *SPEED,
    *PARTS,
)
OVER_ORIGINAL = Column(
    "over plain",
    "Of a case that changes the answer: tokens per second over those of the target's own plain "
    "decoding in the same repeat.",
    lambda row: speedup(row.over_original),
)
DIFFERING = Column(
    "differ",
    "Share of the tokens that are not those of the target's plain decoding at their place: after "
    "the first one that is not, most are not.",
    lambda row: percent(row.differing),
)
LIKELIHOOD = Column(
    "log-likelihood",
    "Of a token, on average, in nats: what the target itself thinks of the text, without options; "
    "that of its own plain decoding stands in the row of none.",
    lambda row: number(row.log_likelihood, "{:.3f}"),
)
DIVERGENCE = Column(
    "KL",
    "Mean Kullback-Leibler divergence of a model's distributions from the target's, in nats, after "
    "the same prefixes: those of the target's own answers.",
    lambda row: number(row.divergence, "{:.3f}"),
)
WEIGHTS = Column(
    "weights",
    "What the weights of the model take, those of drafters aside.",
    lambda row: memory(row.weight_bytes),
)
CHANGED: tuple[Column, ...] = (
    TOKENS_PER_SECOND,
    OVER_ORIGINAL,
    TAU,
    DIFFERING,
    LIKELIHOOD,
    DIVERGENCE,
    Column(
        "same choice",
        "Share of these prefixes after which the same token is the likeliest.",
        lambda row: percent(row.same_choice),
    ),
    Column(
        "own plain",
        "Prompts whose answers have the tokens of the same model's own plain decoding, of those "
        "compared: speculation on top changes nothing more.",
        IDENTICAL.show,
    ),
    WEIGHTS,
)
TERMINAL_CHANGED: tuple[Column, ...] = (
    MEDIAN_RATE,
    OVER_ORIGINAL,
    DIFFERING,
    LIKELIHOOD,
    DIVERGENCE,
    WEIGHTS,
)
TERMINAL: tuple[Column, ...] = (MEDIAN_RATE, SPEEDUP, TAU, ACCEPTED, PREDICTED, IDENTICAL)
"""What has room on a terminal beside a name."""


def known(columns: Sequence[Column], rows: Sequence[Row]) -> tuple[Column, ...]:
    """Return the columns that show something of at least one row."""
    return tuple(column for column in columns if any(column.show(row) for row in rows))
