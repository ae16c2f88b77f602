"""The card of a trained drafter: what it is, how it came about, and how good it is."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.errors import OptionError
from outrider.files import write_at_once

if TYPE_CHECKING:
    from outrider.machine import Machine
    from outrider.training.evaluate import Evaluation
    from outrider.training.score import Score
    from outrider.training.settings import TrainOptions
    from outrider.training.trainer import Outcome

CARD, RECORD = "README.md", "training.json"
_FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingCard:
    """All there is to say of how a drafter was trained."""

    title: str
    """What it is, as "EAGLE-3 head"."""
    spec: str
    """What `--drafter` is given for it, as "eagle:PATH"."""
    target: str
    data: Mapping[str, str | int]
    """What it learnt from: names and counts."""
    command: Sequence[str]
    """The words of the command that trained it."""
    options: TrainOptions
    outcome: Outcome
    machine: Machine
    evaluation: Evaluation | None = None
    notes: Sequence[str] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "format": _FORMAT,
            "title": self.title,
            "spec": self.spec,
            "target": self.target,
            "data": dict(self.data),
            "command": list(self.command),
            "options": asdict(self.options),
            "outcome": asdict(self.outcome),
            "machine": asdict(self.machine),
            "evaluation": None if self.evaluation is None else self.evaluation.to_dict(),
            "notes": list(self.notes),
        }

    def to_markdown(self) -> str:
        """Return the card as people read it."""
        return "\n".join([*self._opening(), *self._training(), *self._measured(), *self._notes()])

    def save(self, folder: Path) -> tuple[Path, Path]:
        """Write README.md and training.json into the drafter's folder; return their paths.

        Raises OptionError where they cannot be written.
        """
        record = json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"
        return _write(folder / CARD, self.to_markdown()), _write(folder / RECORD, record)

    def _opening(self) -> Iterator[str]:
        yield from ("---", "library_name: outrider", "tags: [speculative-decoding]", "---", "")
        yield from (f"# {self.title} for {self.target}", "")
        yield "A drafter for lossless speculative decoding: the text is that of the target alone."
        yield from (
            "",
            "```",
            shlex.join(["outrider", "generate", "--target", self.target]) + " \\",
        )
        yield f"    {shlex.join(['--drafter', self.spec])} PROMPT"
        yield from ("```", "")

    def _training(self) -> Iterator[str]:
        place, kept = self.outcome.place, self.outcome.kept
        yield from ("## Training", "", "```", shlex.join(self.command), "```", "")
        yield from ("| | |", "|---|---|")
        rows: dict[str, str | int] = {"target": self.target, **self.data}
        rows["tokens learnt from, with repeats"] = f"{place.tokens:,}"
        rows["steps"] = f"{place.step:,} of {self.outcome.total_steps:,}"
        why = f", the best on what was held out: tau {place.best.tau:.3f}" if place.best else ""
        rows["weights kept"] = f"those of step {kept:,}{why}"
        rows["hours"] = f"{place.seconds / 3600:.2f}"
        rows["machine"] = self.machine.accelerator or self.machine.processor
        rows["versions"] = ", ".join(f"{name} {one}" for name, one in self.machine.versions.items())
        for name, value in rows.items():
            yield f"| {_cell(name)} | {_cell(value)} |"
        yield ""

    def _measured(self) -> Iterator[str]:
        yield from ("## Evaluation", "")
        if self.evaluation is None:
            yield from ("Not measured.", "")
            return
        found = self.evaluation
        yield f"Prompts that were not trained on, up to {found.max_new_tokens} tokens each, rule"
        yield f"`{found.rule}`, max_draft `{found.max_draft}`; speed is over plain decoding on the"
        yield from ("same machine, in turns.", "")
        yield "| temperature | task | prompts | tau | acceptance by depth | identical | speed |"
        yield "|---|---|---|---|---|---|---|"
        yield from (_row(score) for score in found.scores)
        yield ""
        yield from (f"- not identical, {difference}" for difference in found.differences)
        if found.error is not None:
            yield f"- the drafter raised and was dropped: {found.error}"
        yield ""

    def _notes(self) -> Iterator[str]:
        if self.notes:
            yield from ("## Notes", "", *(f"- {note}" for note in self.notes), "")


def _row(score: Score) -> str:
    depths = " ".join(f"{one:.2f}" for one in score.conditional_acceptance)
    same = "not promised" if score.identical is None else f"{score.identical:.1%}"
    cells = [f"{score.temperature:g}", score.task, str(score.prompts)]
    cells += [f"{score.acceptance_length:.2f}", depths, same, f"{score.speedup:.2f}x"]
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(value: object) -> str:
    """Return text that stays in its cell of a table."""
    return " ".join(str(value).split()).replace("|", "\\|")


def _write(path: Path, text: str) -> Path:
    try:
        return write_at_once(path, text)
    except OSError as error:
        raise OptionError(f"cannot write {path}: {error.strerror or error}") from error
