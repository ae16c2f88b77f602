"""Drafters that come with outrider: trained for the embedded model, by `outrider train`.

A folder for each target, and in it one for each kind of drafter, with the card of its training.
"""

from __future__ import annotations

from pathlib import Path

from outrider.errors import OptionError

_FOLDER = Path(__file__).parent
# What `outrider train` calls a kind, which is the name of its folder, and what it is.
_TRAINED = {"model": "draft"}
_NOUNS = {"model": "model"}


def bundled_head(kind: str, target: str) -> Path:
    """Return the folder of the head, or draft model, of that kind which comes along for a target.

    `kind` is the word that specs have for it. A quantised target has that of the model it was made
    from. Raises OptionError if there is none.
    """
    trained = _TRAINED.get(kind, kind)
    folder = _FOLDER / target.partition("@")[0] / trained
    if not (folder / "config.json").is_file():
        raise OptionError(
            f"drafter {kind!r} names no {_NOUNS.get(kind, 'head')}, and none comes with outrider "
            f"for {target}; write {kind}:PATH, or train one: outrider train {trained}"
        )
    return folder
