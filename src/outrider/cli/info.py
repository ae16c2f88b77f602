"""`outrider info`: what a target and a drafter are, and whether they fit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from outrider.cli import options as cli
from outrider.cli.chatter import chatter
from outrider.targets.base import NORMED

if TYPE_CHECKING:
    from outrider.checkpoints.inspection import HeadReport
    from outrider.drafters.spec import Way
    from outrider.drafters.translation import Overlap
    from outrider.targets.inspection import ModelReport, PairReport


_WAYS: dict[Way, str] = {
    "tokens": "tokens that both have (way=tokens)",
    "text": "text that the target's tokenizer cuts (way=text)",
}


def info(
    ctx: typer.Context,
    target: cli.TargetOption = cli.DEFAULT_TARGET,
    drafter: cli.OneDrafterOption = cli.DEFAULT_DRAFTER,
    dtype: cli.DtypeOption = None,
    trust_remote_code: cli.TrustOption = False,
    as_json: cli.JsonOption = False,
) -> None:
    """Show what a target and a drafter are and whether they fit, without loading weights.

    And what `outrider tune` measured of the target on this machine, if it did.

    Example: outrider info --target smollm2-135m --drafter suffix
    """
    with chatter():
        from outrider.targets.inspection import inspect_pair
        from outrider.tuning.measured import measured_here

        options = cli.given(ctx.params, ("dtype", "trust_remote_code"))
        report = inspect_pair(target, drafter, **options)
        measured = measured_here(target)
    if as_json:
        found = {"measured": [one.to_dict() for one in measured]}
        typer.echo(json.dumps(report.to_dict() | found))
        return
    console = Console(markup=False, highlight=False)
    console.print(_models(report))
    for name, value in _pair(report):
        console.print(f"{name}: {value}", soft_wrap=True)
    for one in measured:
        console.print(f"measured here ({one.setting}): {one}", soft_wrap=True)


def _models(report: PairReport) -> Table:
    models = [model for model in (report.target, report.drafter) if model is not None]
    table = Table("", "target", *(["drafter"] if report.drafter is not None else []))
    for row in zip(*(_properties(model) for model in models), strict=True):
        table.add_row(row[0][0], *(value for _, value in row))
    return table


def _properties(model: ModelReport) -> list[tuple[str, str]]:
    rollback = model.rollback
    return [
        ("model", model.spec),
        ("class", model.model_class or f"none ({model.model_type})"),
        ("layers", _count(model.layers)),
        ("parameters", _count(model.parameters)),
        ("weights", f"{_size(model.weight_bytes)} in {model.dtype}"),
        ("cache per token", _size(model.kv_bytes_per_token)),
        ("context", f"{_count(model.context_length)} tokens"),
        ("vocabulary", f"{_count(model.vocabulary)} ids, {_count(model.rows)} logits"),
        ("rollback", f"{rollback.kind}{f': {rollback.reason}' if rollback.reason else ''}"),
    ]


def _pair(report: PairReport) -> list[tuple[str, str]]:
    if report.head is not None:
        lines = _head(report.head)
    elif report.drafter is None:
        lines = [("drafter", f"{report.drafter_kind} (no model)")]
    else:
        lines = []
    if report.target.hears_s is not None:
        lines.append(("hears", f"recordings of at most {report.target.hears_s:g} s"))
    if report.vocabulary is not None:
        how = "checked id by id" if report.vocabulary.is_checked else "only sizes were compared"
        lines.append(("shared ids", f"{_count(report.vocabulary.shared_ids)}, {how}"))
    if report.overlap is not None:
        lines += _overlap(report.overlap)
    if report.recommendation is not None:
        lines.append(("size", report.recommendation))
    lines.append(("memory at full context", _size(report.total_bytes)))
    reasons = "; ".join(report.unsupported)
    return [*lines, ("supported", f"no: {reasons}" if reasons else "yes")]


def _overlap(overlap: Overlap) -> list[tuple[str, str]]:
    shares = (overlap.target_tokens, overlap.draft_tokens)
    ours, theirs = (f"{overlap.shared / max(1, tokens):.1%}" for tokens in shares)
    ways = [_WAYS[way] for way in overlap.ways]
    which = "" if len(ways) == 1 else ", whichever brings more"
    return [
        (
            "tokens in common",
            f"{_count(overlap.shared)}: {ours} of the target's, {theirs} of its own",
        ),
        ("drafts", f"{' or '.join(ways)}{which}"),
    ]


def _head(head: HeadReport) -> list[tuple[str, str]]:
    many = f"{head.heads} heads of " if head.heads is not None else ""
    noun = "head" if head.feature_layers != () else "own"
    changed = ", which was trained along with it" if head.changes_target else ""
    return [
        ("drafter", f"{head.title} in {head.format} format, {head.spec}"),
        (f"{noun} layers", f"{many}{head.layers}"),
        (
            f"{noun} parameters",
            f"{_count(head.parameters)}, {_size(head.weight_bytes)} in {head.dtype}",
        ),
        _reads(head.feature_layers),
        ("drafts", f"{_count(head.draft_vocabulary)} of {_count(head.vocabulary)} token ids"),
        ("trained for", f"{head.trained_for or 'unknown'}{changed}"),
    ]


def _reads(layers: tuple[int, ...] | None) -> tuple[str, str]:
    if layers == ():
        return "shares the target's", "embeddings and output layer"
    if layers is None:
        where = "of layers its depth decides"
    elif layers == (NORMED,):
        where = "after the final norm"
    else:
        where = f"entering layers {', '.join(map(str, layers))}"
    return "reads the target's state", where


def _count(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _size(number: int | None) -> str:
    if number is None:
        return "unknown"
    size, units = float(number), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:,.0f} {units[0]}" if units[0] == "bytes" else f"{size:,.1f} {units[0]}"
