"""Log-probabilities in the two forms that OpenAI's API has for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from outrider.server.echo import Echo
from outrider.server.token_texts import TokenTexts
from outrider.types import Token, TokenLogprobs

_LEAST = -9999.0  # OpenAI's word for a token without any chance: JSON has no infinities


def chat_logprobs(tokens: Sequence[Token], texts: TokenTexts) -> dict[str, Any]:
    """Return the `logprobs` of a choice of a chat: an entry a token."""
    content = []
    for token in tokens:
        record = _record(token)
        top = [_entry(token_id, value, texts) for token_id, value in record.top]
        content.append(_entry(token.id, record.chosen, texts) | {"top_logprobs": top})
    return {"content": content, "refusal": None}


def completion_logprobs(
    tokens: Sequence[Token], offsets: Sequence[int], texts: TokenTexts
) -> dict[str, Any]:
    """Return the `logprobs` of a choice of a completion; texts of tokens begin at `offsets`."""
    records = [_record(token) for token in tokens]
    return {
        "tokens": [texts.text(token.id) for token in tokens],
        "token_logprobs": [_finite(record.chosen) for record in records],
        "top_logprobs": [
            _by_text(token.id, record, texts) for token, record in zip(tokens, records, strict=True)
        ],
        "text_offset": list(offsets),
    }


def prompt_logprobs(
    echo: Echo, records: Sequence[TokenLogprobs], texts: TokenTexts
) -> dict[str, Any]:
    """Return the part of `logprobs` that a prompt has: of its first token nothing is known."""
    scored = list(zip(echo.ids[1:], records, strict=True))
    return {
        "tokens": [texts.text(token) for token in echo.ids],
        "token_logprobs": [None, *(_finite(record.chosen) for _, record in scored)],
        "top_logprobs": [None, *(_by_text(token, record, texts) for token, record in scored)],
        "text_offset": list(echo.offsets),
    }


def _record(token: Token) -> TokenLogprobs:
    assert token.logprobs is not None, "log-probabilities were not asked for"
    return token.logprobs


def _entry(token_id: int, value: float, texts: TokenTexts) -> dict[str, Any]:
    return {
        "token": texts.text(token_id),
        "logprob": _finite(value),
        "bytes": texts.bytes(token_id),
    }


def _by_text(token: int, record: TokenLogprobs, texts: TokenTexts) -> dict[str, float]:
    """Return the likeliest tokens by text, the chosen one among them, as OpenAI has it.

    Of several tokens with one text, the likeliest counts.
    """
    found: dict[str, float] = {}
    for token_id, value in (*record.top, (token, record.chosen)):
        found.setdefault(texts.text(token_id), _finite(value))
    return found


def _finite(value: float) -> float:
    return value if math.isfinite(value) else _LEAST
