"""The contract between the engine and the model that is decoded from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.errors import PromptError, UnsupportedModelError
from outrider.types import NO_DRAFT, DraftTree, EncoderInput, Numerics, Recording

if TYPE_CHECKING:
    import torch
    from torch import Tensor


NORMED = -1
"""The number of the hidden state that the language-model head reads: after the final norm."""


@dataclass(frozen=True, slots=True)
class Rows:
    """One request's share of a pass.

    `pending` are the committed tokens the sequence has not cached yet, at least one; the last of
    them is the root of `tree`.
    """

    sequence: int
    pending: tuple[int, ...]
    tree: DraftTree = NO_DRAFT
    scores_pending: bool = False
    """Whether the logits of all pending tokens are wanted, not only the root's."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRows:
    """Logits of one pass: `logits[b]` [1 + N_b, V], row 0 the root, row i + 1 node i.

    Where pending tokens are scored, their rows come first: [P_b + N_b, V].
    """

    logits: tuple[Tensor, ...]
    seconds: float
    """Time spent inside the model itself."""
    features: tuple[Tensor, ...] = ()
    """Hidden states [P_b + N_b, layers * H] of every row, pending tokens first, if any layers were
    asked for: those of the first such layer, then of the second, side by side."""


class Target(ABC):
    """A language model with a cache of committed tokens for each open sequence.

    `score` reads the cache without changing what is committed; `commit` keeps the pending tokens
    and the accepted path and drops every other row of the last pass.
    """

    vocab_size: int
    max_positions: int
    """Most tokens a sequence can hold, prompt and output together."""
    device: torch.device
    preferred_rows: int | None
    """Rows a pass costs nothing extra to fill, if the target works in fixed shapes."""
    numerics: Numerics = "fast"
    """Whether a row has the same bits whatever else is in its pass ("invariant"), or nearly."""
    scores_prompts: bool = False
    """Whether it gives the logits of pending tokens, if rows ask for them."""

    reads_input: bool = False
    """Whether each sequence begins with an input, which an encoder reads (`read`)."""
    prompt_ids: tuple[int, ...] = ()
    """What each text begins with, for a target that reads inputs."""
    shares_input_ids: bool = False
    """Whether the ids of inputs mean what the same ids mean in texts."""
    reads_audio: bool = False
    """Whether inputs are recordings."""

    def pass_rows(self, counts: Sequence[int]) -> int:
        """Return the rows the model computes for a pass over sequences of so many rows each.

        More than their sum where a pass is padded to a rectangle or to fixed shapes.
        """
        return sum(counts)

    def require_room(self, sequences: int, tokens: int, rows: int, input_tokens: int = 0) -> None:
        """Raise OptionError, with the numbers, if so many more sequences do not fit in memory.

        Each may hold `tokens` tokens, and an input of `input_tokens`; a pass has at most `rows`
        rows whose logits are kept. A target that cannot tell lets everything through.
        """
        return

    def check_input(self, given: EncoderInput) -> None:
        """Raise PromptError for an input that the encoder cannot read."""
        raise PromptError(f"an input is given, and {type(self).__name__} has no encoder to read it")

    def input_length(self, given: EncoderInput) -> int:
        """Return how many positions cross-attention has of an input: as a rule one for each id."""
        return 0 if isinstance(given, Recording) else len(given)

    def read(self, sequence: int, given: EncoderInput) -> float:
        """Let the encoder read a sequence's input, before any of its text; returns the seconds.

        Raises PromptError for what `check_input` refuses.
        """
        self.check_input(given)
        return 0.0

    def open_trial(self, max_tokens: int) -> int:
        """Reserve a sequence to try passes on: one that has read an input, where there is one."""
        return self.open(max_tokens)

    @abstractmethod
    def open(self, max_tokens: int) -> int:
        """Reserve a sequence for at most `max_tokens` tokens, and return its handle."""

    def prepare(self, layers: Sequence[int]) -> None:
        """Get ready to give the hidden states of these layers, as `score` is going to be asked to.

        Raises OptionError for a layer that the model does not have, and UnsupportedModelError if
        it gives no features.
        """
        if layers:
            raise UnsupportedModelError(f"{type(self).__name__} gives no hidden states")

    @abstractmethod
    def score(self, rows: Sequence[Rows], layers: Sequence[int] = ()) -> ScoredRows:
        """Run the model over pending tokens and tree nodes of several sequences at once.

        A node sees the committed prefix, its ancestors and itself, at position prefix + depth.
        `layers` ask for features: number i for what enters layer i (counted from 0; the number of
        layers for what leaves the last one), `NORMED` for what the language-model head reads.
        """

    @abstractmethod
    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """Keep the last pass's pending tokens and the tree nodes in `path`; drop its other rows."""

    @abstractmethod
    def cached(self, sequence: int) -> int:
        """Return how many tokens of the sequence are cached."""

    @abstractmethod
    def crop(self, sequence: int, length: int) -> None:
        """Forget all cached tokens of the sequence beyond the first `length`."""

    @abstractmethod
    def close(self, sequence: int) -> None:
        """Free the sequence."""
