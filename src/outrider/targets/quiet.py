"""Transformers without its progress bars and chatter, for the length of one load."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hold back Transformers' bars and everything below an error; put its settings back after."""
    from transformers.utils import logging as chatter

    verbosity = chatter.get_verbosity()
    hook = chatter.set_tqdm_hook(_without_bar)
    chatter.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        chatter.set_verbosity(verbosity)
        chatter.set_tqdm_hook(hook)


def _without_bar(
    factory: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    return factory(*args, **{**options, "disable": True})
