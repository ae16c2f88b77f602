"""Whether what was decoded may stand in for what is read: tried on this machine, not assumed.

A prompt may go through a model in other shapes than the text that follows it, and rows may have
other bits for it. Fast numerics promises no bits. Invariant numerics does, so that there a cache of
decoded tokens serves a prompt that begins with them only if both are seen to be the same.
"""

from __future__ import annotations

from random import Random

import torch
from torch import Tensor

from outrider.targets.base import Rows, Target
from outrider.types import DraftTree

_TOKENS, _PROMPT = 40, 16
_WIDTHS = (1, 2, 4, 8, 3, 5)


def may_reuse_decoded(target: Target) -> bool:
    """Whether the cached rows of decoded tokens are as good as those of a prompt that is read.

    Under invariant numerics a few passes find out; at most one sequence is open at a time.
    """
    if target.numerics != "invariant":
        return True
    length = min(_TOKENS, target.max_positions - 1)
    random = Random(0)
    tokens = tuple(random.randrange(target.vocab_size) for _ in range(length))
    return torch.equal(_read(target, tokens, length - 1), _read(target, tokens, _PROMPT))


def _read(target: Target, tokens: tuple[int, ...], prompt: int) -> Tensor:
    """Return the logits after a text of which the first tokens are a prompt, the rest decoded."""
    sequence = target.open_trial(len(tokens))
    try:
        at, turn = min(prompt, len(tokens) - 1), 0
        target.score([Rows(sequence, tokens[: at + 1])])
        target.commit(sequence, ())
        # The last row of a prompt is where decoding begins, and has the bits of that.
        target.crop(sequence, at)
        while at < len(tokens) - 1:
            width = min(_WIDTHS[turn % len(_WIDTHS)], len(tokens) - 1 - at)
            draft = DraftTree.chain(tokens[at + 1 : at + width])
            target.score([Rows(sequence, (tokens[at],), draft)])
            target.commit(sequence, range(width - 1))
            at, turn = at + width, turn + 1
        return target.score([Rows(sequence, tokens[-1:])]).logits[0]
    finally:
        target.close(sequence)
