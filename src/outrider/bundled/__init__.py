"""Drafters that come with outrider: heads trained for the embedded model, by `outrider train`.

A folder for each target, and in it one for each kind of head, with the card of its training.
"""

from __future__ import annotations

from pathlib import Path

from outrider.errors import OptionError

_FOLDER = Path(__file__).parent


def bundled_head(kind: str, target: str) -> Path:
    """Return the folder of the head of that kind which comes along for a target.

    A quantised target has that of the model it was made from. Raises OptionError if there is none.
    """
    folder = _FOLDER / target.partition("@")[0] / kind
    if not (folder / "config.json").is_file():
        raise OptionError(
            f"drafter {kind!r} names no head, and none comes with outrider for {target}; "
            f"write {kind}:PATH, or train one: outrider train {kind}"
        )
    return folder
