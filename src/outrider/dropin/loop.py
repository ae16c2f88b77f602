"""The loop of `generate`, with the rows' tokens decoded speculatively."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.generation.utils import GenerateDecoderOnlyOutput

from outrider.dropin.call import Call
from outrider.dropin.rows import Rows


def decode(rows: Rows, call: Call, streamer: Any) -> Any:
    """Take all rows in step until the criteria end them; return what `generate` returns.

    Criteria and streamer are told of every token in turn, of all rows together, however many
    tokens a round brought. A row that has ended is padded if there is an end-of-text id, and goes
    on until all have ended if there is none, as in `generate`.
    """
    ids = call.input_ids
    unfinished = torch.ones(len(ids), dtype=torch.bool, device=ids.device)
    scores: list[Tensor] = []
    logits: list[Tensor] = []
    while bool(unfinished.any()):
        tokens = _tokens(rows, call, unfinished)
        _keep(rows, call, scores, logits)
        ids = torch.cat((ids, tokens[:, None]), dim=-1)
        done = call.criteria(ids, tuple(scores) if call.keeps_scores else None)
        was, unfinished = unfinished, unfinished & ~done
        if streamer is not None:
            streamer.put(tokens.cpu())
        if call.pads_rows:
            for row in (was & ~unfinished).nonzero().squeeze(-1).tolist():
                rows.end(row)
    if streamer is not None:
        streamer.end()
    if not call.returns_output:
        return ids
    output: Any = GenerateDecoderOnlyOutput  # its fields are annotated narrower than they are
    return output(
        sequences=ids,
        scores=tuple(scores) if call.keeps_scores else None,
        logits=tuple(logits) if call.keeps_logits else None,
    )


def _tokens(rows: Rows, call: Call, unfinished: Tensor) -> Tensor:
    """Return the next token of each row [B]."""
    goes_on = [flag or not call.pads_rows for flag in unfinished.tolist()]
    tokens = [rows.take(row) if on else call.pad_token_id for row, on in enumerate(goes_on)]
    return call.input_ids.new_tensor(tokens)


def _keep(rows: Rows, call: Call, scores: list[Tensor], logits: list[Tensor]) -> None:
    """Add what is wanted of this step, [B, V] each."""
    if not (call.keeps_scores or call.keeps_logits):
        return
    step = max(len(scores), len(logits))
    records = [rows.record(row, step) for row in range(len(call.prompts))]
    if call.keeps_scores:
        scores.append(torch.cat([record.scores for record in records]))
    if call.keeps_logits:
        logits.append(torch.cat([record.logits for record in records]))
