"""What the target thinks of texts, and how far another model's distributions lie from its own.

All of it is read off the logits themselves, without temperature or any other option, in passes of
a fixed width after the benchmark's turns: nothing of it is in the time of a case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torch.nn.functional import kl_div

from outrider.targets.base import Rows, Target
from outrider.types import DraftTree, TokenIds

if TYPE_CHECKING:
    from torch import Tensor

_WIDTH = 32


def log_likelihood(target: Target, prompt_ids: TokenIds, answer_ids: TokenIds) -> float:
    """Return the log-probability of an answer after its prompt, in nats."""
    total = 0.0
    start = 0
    for logs in _log_probs(target, prompt_ids, answer_ids):
        chosen = answer_ids[start : start + len(logs)]
        total += float(logs[range(len(logs)), list(chosen)].double().sum())
        start += len(logs)
    return total


def diverge(
    target: Target, other: Target, prompt_ids: TokenIds, answer_ids: TokenIds
) -> tuple[float, int]:
    """Return KL(target || other), added up over the positions of an answer, in nats.

    The second value is how many of them have the same likeliest token. Ids that only one of two
    heads has, as padding, are left out.
    """
    nats, same = 0.0, 0
    pairs = zip(
        _log_probs(target, prompt_ids, answer_ids),
        _log_probs(other, prompt_ids, answer_ids),
        strict=True,
    )
    shared = min(target.vocab_size, other.vocab_size)
    for one, another in pairs:
        ours, theirs = one[:, :shared].double().cpu(), another[:, :shared].double().cpu()
        nats += float(kl_div(theirs, ours, reduction="sum", log_target=True))
        same += int((ours.argmax(-1) == theirs.argmax(-1)).sum())
    return max(0.0, nats), same


def _log_probs(target: Target, prompt_ids: TokenIds, answer_ids: Sequence[int]) -> Iterator[Tensor]:
    """Yield log-probabilities [W, V] at the positions of an answer, some positions at a time."""
    sequence = target.open(len(prompt_ids) + len(answer_ids))
    pending = tuple(prompt_ids)
    try:
        for start in range(0, len(answer_ids), _WIDTH):
            known = answer_ids[start : start + _WIDTH]
            tree = DraftTree.chain(known[:-1])
            (logits,) = target.score([Rows(sequence, pending, tree)]).logits
            yield logits.float().log_softmax(-1)
            target.commit(sequence, range(len(tree)))
            pending = (known[-1],)
    finally:
        target.close(sequence)
