"""What `generate` is given and does not hand on to a callable that decodes in its place."""

from __future__ import annotations

import sys
from typing import Any

_KEPT_BACK = ("streamer", "assistant_model", "synced_gpus")


def kept_back(model: Any) -> dict[str, Any]:
    """Return the streamer, assistant and `synced_gpus` of the `generate` that called us.

    Transformers names these to its own loops only, and a text that was never streamed, or an
    assistant that was never asked, would go unnoticed: so they are read where they are. Empty if
    something else than `generate` called.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "generate" and frame.f_locals.get("self") is model:
            return {name: frame.f_locals.get(name) for name in _KEPT_BACK}
        if frame.f_back is None:
            break
        frame = frame.f_back
    return {}
