"""A stand-in for an adapter: `python fake_peer.py HOW`. It decodes by adding one to an id."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

VERSIONS = {"fake": "1.2"}
TRICKS: dict[str, list[Any]] = {
    "no answers": [],
    "many": [[5, 6, 7, 8], [5, 6, 7, 8]],
    "long": [[5, 6, 7, 8, 9]],
    "short": [[5, 6]],
    "foreign": [[5, 6, 7, 64]],
    "negative": [[5, 6, 7, -1]],
    "texts": [["5", "6", "7", "8"]],
    "empty": [[]],
    "beyond the end": [[5, 1, 7, 8]],
}
"""Answers that are none, where four of 64 ids are asked for and 1 ends a text."""


def reply(how: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return what is said to a request."""
    if request["do"] == "load":
        if how == "no versions":
            return {}
        if how == "fails to load":
            return {"error": "RuntimeError: no such weights"}
        return {"versions": VERSIONS | {"said": json.dumps(request)}, "memory": 1000}
    if how == "fails to decode":
        return {"error": "ValueError: too long a prompt"}
    count = request["max_new_tokens"]
    answers = TRICKS.get(how)
    if answers is None:
        starts = [prompt[-1] + 1 for prompt in request["prompts"]]
        answers = [list(range(start, start + count)) for start in starts]
    counts = {"rounds": 3, "proposed": 4, "accepted": 1}
    return {"answers": answers, "seconds": 0.5, "counts": counts, "memory": 3000}


def say(document: Any) -> None:
    """Reply."""
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def mutter(text: str) -> None:
    """Print what is no reply."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def main(how: str) -> None:
    """Answer requests, or do what no adapter should."""
    mutter("loading something")
    for line in sys.stdin:
        if how == "dies" or (how == "dies decoding" and "prompts" in line):
            mutter("Segmentation something\n")
            os._exit(3)
        if how == "is silent":
            time.sleep(600)
        if how == "garbage":
            sys.stdout.write("not json\n")
            sys.stdout.flush()
        elif how == "a list":
            say([1, 2])
        elif how == "pid":
            say({"pid": os.getpid()})
        elif how == "environment":
            say(dict(os.environ))
        else:
            say(reply(how, json.loads(line)))


if __name__ == "__main__":
    main(sys.argv[1])
