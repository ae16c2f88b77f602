"""A proof, or a loss, as a page to show to others: what was run, every number, the verdict."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from outrider.errors import LoadError, OptionError
from outrider.files import write_at_once
from outrider.proof.base import Part, Proof, Table
from outrider.proof.distribution import FALSE_ALARM
from outrider.proof.evidence import Evidence
from outrider.proof.loss import Loss
from outrider.proof.loss_tables import loss_findings, loss_tables
from outrider.proof.tables import findings, proof_tables

_HOW: dict[Part, str] = {
    "identity": """\
Plain decoding is the same engine without a drafter. It answers each question alone. Then the
drafters answer it, alone or in a batch, and all token ids, texts and ends are compared. *Told*
drafters are outrider's own: they are given the answer and err on purpose, so that drafts are
accepted and rejected at every depth. `rejection`, `block` and `traversal` promise the same tokens
for greedy decoding only.""",
    "distribution": """\
Many short answers to one context are drawn, and counted against the exact probabilities of the
target's own logits. Each test is a chi-square test (its value, *on* so many degrees of freedom) of
whole texts of up to three tokens, four likely tokens at a time, one of which ends the text.
*Contrary* drafters draw from the target's distribution turned upside down. A *control* tells a
false q, and passes only if the test finds it out. All tests of a sound pair together fail
once in {alarm:,} choices of the seed.""",
    "rules": """\
Every draft and every decision of a round, on vocabularies of two to four tokens, with all
probabilities as fractions. What is emitted must have the target's joint law, exactly, and the
expected number of accepted tokens must be what the rule's formula says.""",
    "options": """\
Each option with values taken from plain decoding's own answer, so that they matter; *changed*
counts the answers that the option made different. Plain decoding and the drafters answer the same
questions with it.""",
}
_BITWISE = """\
With `numerics=invariant` equal means bit for bit: token ids, and the log-probabilities of the
emitted and the five likeliest tokens at every position. No difference is excused."""
_FAST = """\
With `numerics=fast` the last bits of a logit may depend on how many tokens a pass holds. A token
that differs (a *fork*) is a floating-point *tie* only if plain decoding's own margin there is
within the noise, which is measured at that very position by passes of other widths. Any other fork
is a fault. `numerics=invariant` leaves no ties."""


_LOSS = (
    """\
Many short answers to two contexts are drawn, four likely tokens at a time, and held against the
exact probabilities of the target's own logits: half the sum of what shares and probabilities differ
by, for first tokens and for whole texts of up to three. In brackets the *noise floor*, the
farthest that so many draws from those probabilities themselves came to lie, in a thousand trials;
plain decoding stands below it.""",
    """\
Every prompt is answered greedily: plainly, by the lossy rule, and with the same drafts by `match`.
*Differ* is the share of tokens that are not plain decoding's at their place; after the first one
that is not, most are not. In brackets stands what comes of `match`. *Told* drafters
are outrider's own: they are given plain decoding's answer and err on purpose.""",
)


def write_report(found: Proof | Loss, path: Path, command: str) -> None:
    """Write the page; a reader sees the old file or the new one. Raises LoadError."""
    page = markdown(found, command) if isinstance(found, Proof) else loss_page(found, command)
    try:
        write_at_once(path, page)
    except OSError as error:
        raise LoadError(f"cannot write the report {str(path)!r}: {error.strerror}") from error


def require_writable(path: Path) -> None:
    """Raise OptionError for a report that could not be written, before any work is done."""
    folder = path.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK) or path.is_dir():
        raise OptionError(f"the report {str(path)!r} cannot be written there")


def markdown(proof: Proof, command: str) -> str:
    """Return the page of a proof as Markdown."""
    told = {part: text.format(alarm=round(1 / FALSE_ALARM)) for part, text in _HOW.items()}
    sections = [
        "# Evidence of lossless decoding",
        f"**{proof.verdict}**",
        _facts(proof, command),
        _BITWISE if proof.subject.numerics == "invariant" else _FAST,
        *(_section(table, told[part]) for part, table in proof_tables(proof).items()),
        _findings(findings(proof)),
    ]
    return _page(sections)


def loss_page(loss: Loss, command: str) -> str:
    """Return the page of a loss as Markdown."""
    sections = [
        "# What a lossy rule costs",
        f"**{loss.verdict}**",
        _facts(loss, command),
        *(_section(table, told) for table, told in zip(loss_tables(loss), _LOSS, strict=True)),
        _findings(loss_findings(loss)),
    ]
    return _page(sections)


def _page(sections: Sequence[str]) -> str:
    return "\n\n".join(section for section in sections if section) + "\n"


def _facts(found: Evidence, command: str) -> str:
    subject, machine = found.subject, found.machine
    threads = f"{machine.threads} threads on {machine.cores} cores"
    facts = {
        "Command": f"`{command}`",
        "Target": f"{subject.model}, {subject.dtype}, on {subject.placement}",
        "Drafters": ", ".join(found.drafters) or "none",
        "Numerics": subject.numerics,
        "Passes": subject.passes,
        "Machine": machine.accelerator or f"{machine.processor}, {threads}",
        "Versions": ", ".join(f"{name} {text}" for name, text in sorted(machine.versions.items())),
        "Settings": ", ".join(f"{name} {value:,}" for name, value in found.settings.items()),
        "Measured": f"{found.measured}, in {found.seconds / 60:.1f} minutes",
    }
    return _table(["", ""], [[name, text] for name, text in facts.items()])


def _section(table: Table, told: str) -> str:
    return f"## {table.title}\n\n{told}\n\n{_table(table.headers, table.rows)}"


def _findings(lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return "## Findings\n\n" + "\n".join(f"- {_escaped(line)}" for line in lines)


def _table(names: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    table = [list(names), ["---"] * len(names), *lines]
    return "\n".join("| " + " | ".join(map(_escaped, line)) + " |" for line in table)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
