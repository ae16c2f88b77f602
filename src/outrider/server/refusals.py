"""Fields of OpenAI's API that are refused by name, and the values that ask for nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from outrider.server.errors import invalid

Refusals: TypeAlias = Mapping[str, tuple[Any, ...]]
"""Field -> the values, beside null, with which it changes nothing."""

CHAT: Refusals = {
    "audio": (),
    "function_call": ("none",),
    "functions": ([],),
    "metadata": ({},),
    "modalities": (["text"],),
    "moderation": (),
    "parallel_tool_calls": (True, False),
    "prompt_cache_key": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": (),
    "reasoning_effort": ("none",),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": ("medium",),
    "web_search_options": (),
}

COMPLETION: Refusals = {
    "suffix": ("",),
}

MESSAGE: Refusals = {
    "annotations": ([],),
    "audio": (),
    "function_call": (),
    "name": (),
    "refusal": (),
    "tool_call_id": (),
    "tool_calls": ([],),
}


def refuse(fields: Mapping[str, Any], refusals: Refusals, where: str = "") -> None:
    """Raise ApiError for the first field that asks for something; `where` is what holds them."""
    for name, neutral in refusals.items():
        value = fields.get(name)
        # 1 == True: a flag is not a number here.
        if value is None or any(value == n and type(value) is type(n) for n in neutral):
            continue
        allowed = " or ".join(["null", *(_shown(one) for one in neutral)])
        raise invalid(
            f"{where}{name} is not supported; leave it out (or {allowed})",
            f"{where}{name}",
            "unsupported_field",
        )


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
