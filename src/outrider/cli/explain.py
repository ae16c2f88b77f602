"""Why each round drafted what it did: what was expected of it, and what it brought."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from outrider.engine.choices import Choice
    from outrider.engine.engine import Engine
    from outrider.engine.stats import Stats


@dataclass(frozen=True, slots=True)
class Explanation:
    """The choices of one request, and in a sentence why its drafts were no longer."""

    choices: tuple[Choice, ...]
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {"choices": [choice.to_dict() for choice in self.choices], "reason": self.reason}

    def table(self) -> Table:
        """Return a row for each choice, those of most rounds first."""
        table = Table("drafter")
        for name in ("drafted", "rounds", "tokens/round", "predicted gain", "realised gain"):
            table.add_column(name, justify="right")
        for choice in self.choices:
            table.add_row(
                choice.drafter,
                str(choice.drafted),
                str(choice.rounds),
                f"{choice.tokens / choice.rounds:.2f}",
                _gain(choice.predicted_gain),
                _gain(choice.gain),
            )
        return table


def explain(engine: Engine, stats: Stats) -> Explanation:
    """Explain the rounds of a finished request."""
    return Explanation(tuple(stats.explain()), _reason(engine, stats))


def _reason(engine: Engine, stats: Stats) -> str:
    if stats.drafter_error is not None:
        return f"A drafter was dropped: {stats.drafter_error}."
    if not engine.drafters:
        return "Plain decoding was asked for, so nothing was drafted."
    if engine.max_draft != "auto":
        return f"Up to {engine.max_draft} tokens were drafted every round, as was asked for."
    longest = max((drafted for _, drafted in stats.choices), default=0)
    # Shown at twice the rows: one row more seldom costs anything worth telling.
    rows = 2 * (1 + longest)
    context = stats.prompt_tokens + stats.tokens / 2
    ratio = engine.costs.seconds(rows, rows * context) / engine.costs.seconds(1, context)
    cost = f"a pass of {rows} rows costs {ratio:.2f}x one of 1"
    tried = sum(stats.attempted_at)
    if not tried:
        return f"Nothing was drafted: no draft promised more than it costs; {cost}."
    share = sum(stats.accepted_at) / tried
    drafts = f"The longest draft had {longest} token{'s' if longest > 1 else ''}"
    return f"{drafts}: {cost}, and {share:.0%} of the drafted tokens that were tried were right."


def _gain(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"
