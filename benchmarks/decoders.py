"""The target of a recipe in each of its forms, its passes, and the drafters beside it."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import outrider
from common import cut_model
from faulty import SlowDrafter, WrongDrafter
from outrider.drafters import build_drafter, read_head
from outrider.drafters.base import Drafter
from outrider.drafters.model import ModelDrafter
from outrider.drafters.spec import parse_spec
from outrider.targets.base import Rows
from outrider.targets.loading import load_model
from outrider.types import DraftTree

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def load(options: argparse.Namespace, weights: str, **more: Any) -> outrider.Decoder:
    """Load the target in one of its forms: "float32", "expanded", "bfloat16" or "int8".

    "expanded" is float32 whose passes read no blocks of a GGUF file.
    """
    spec, dtype = named(options, weights)
    if weights == "expanded":
        loaded = load_model(spec, dtype=dtype)
        more = {"tokenizer": loaded.tokenizer} | more
        return outrider.load(loaded.model, compile=not options.eager, profile=False, **more)
    return outrider.load(spec, dtype=dtype, compile=not options.eager, profile=False, **more)


def named(options: argparse.Namespace, weights: str) -> tuple[str, str]:
    """Return the spec and the dtype of the target in one of its forms."""
    if weights == "int8":
        return f"{options.target}@int8", "float32"
    return options.target, "float32" if weights == "expanded" else weights


def with_drafters(
    plain: outrider.Decoder, names: Sequence[str], options: argparse.Namespace
) -> dict[str, outrider.Decoder]:
    """Return plain decoding, and decoders of the same target with drafters by name.

    Several drafters are joined by "+"; each is built once, however many names it is in.
    """
    built: dict[str, Drafter[Any]] = {}
    decoders = {"none": plain}
    for name in names:
        for part in name.split("+"):
            if part not in built:
                built[part] = drafter_of(part, plain, options)
        drafters = [built[part] for part in name.split("+")]
        decoders[name] = plain.using(drafters, max_draft=options.max_draft)
    return decoders


def drafter_of(kind: str, plain: outrider.Decoder, options: argparse.Namespace) -> Drafter[Any]:
    """Build a drafter: by its spec, a cut of the target ("cut", "cut-tree"), or a faulty one."""
    if kind in ("cut", "cut-tree"):
        cut = outrider.load(cut_model(options.target, 2, options.folder), dtype="float32")
        vocab = plain.engine.target.vocab_size
        width = 1 if kind == "cut" else 4
        return ModelDrafter(cut.engine.target, vocab_size=vocab, shared_ids=vocab, width=width)
    faulty: dict[str, Callable[[], Drafter[Any]]] = {"wrong": WrongDrafter, "slow": SlowDrafter}
    if kind in faulty:
        return faulty[kind]()
    spec = parse_spec(kind)
    built = build_drafter(
        spec,
        plain.loaded,
        plain.engine.target,  # type: ignore[arg-type]
        head=read_head(spec, plain.name, plain.loaded.model.config),
    )
    assert built is not None
    return built


def row_costs(decoder: outrider.Decoder, context: int = 256, repeats: int = 25) -> dict[int, float]:
    """Median seconds of a pass by its rows, interleaved, after so many tokens."""
    target = decoder.engine.target
    text = [7 + i * 31 % 1000 for i in range(context + max(ROWS))]
    sequence = target.open(len(text) + 1)
    target.score([Rows(sequence, tuple(text[:context]))])
    target.commit(sequence, ())
    seconds: dict[int, list[float]] = {rows: [] for rows in ROWS}
    for _ in range(repeats):
        for rows in ROWS:
            tree = DraftTree.chain(text[context + 1 : context + rows])
            started = time.perf_counter()
            target.score([Rows(sequence, (text[context],), tree)])
            seconds[rows].append(time.perf_counter() - started)
    target.close(sequence)
    return {rows: statistics.median(values) for rows, values in seconds.items()}
