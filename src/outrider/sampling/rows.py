"""The target's rows of one request, as the verification rules see them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn

import torch
from torch import Tensor

from outrider.errors import NumericsError
from outrider.sampling.draw import draw_row, highest, race_keys
from outrider.sampling.noise import KeyedNoise, Stream
from outrider.sampling.pipeline import LogitsPipeline
from outrider.trees.layout import row_paths
from outrider.types import DraftTree


class SampledRows:
    """Answers for each row of a pass: the token the target draws there, or its distribution.

    Row 0 is the token at absolute position `position`, a row at depth d the one at position + d.
    On a CPU, and with custom processors everywhere, a row is worked out when it is asked for; on
    an accelerator all rows are drawn together (`draw_rows`), with one copy to the host. A row that
    leaves no token to choose raises NumericsError if it is asked for, and only then.
    """

    def __init__(
        self,
        logits: Tensor,  # [1 + N, V]
        tree: DraftTree,
        pipeline: LogitsPipeline,
        noise: KeyedNoise,
        position: int,
        *,
        request: str = "request",
    ) -> None:
        assert logits.shape[0] == 1 + len(tree), (logits.shape, len(tree))
        self._logits = logits
        self._paths = row_paths(tree)
        self._pipeline = pipeline
        self._noise = noise
        self._position = position
        self._request = request
        self._scores: dict[int, Tensor] = {}
        self._drawn: Sequence[tuple[int, float]] | None = None
        self._probs: Tensor | None = None

    @property
    def is_lazy(self) -> bool:
        """Whether each row is worked out only when asked for."""
        return self._pipeline.is_lazy or self._logits.device.type == "cpu"

    def token(self, row: int) -> int:
        """Return the token the target draws at this row."""
        if self.is_lazy:
            token, best = self._draw(row)
        else:
            if self._drawn is None:
                draw_rows([self])
            assert self._drawn is not None
            token, best = self._drawn[row]
        if not math.isfinite(best):
            self._fail(row, f"the best score is {best}", is_empty=best == -math.inf)
        return token

    def probs(self, row: int) -> Tensor:
        """Return the target's distribution at this row [V], on the CPU."""
        if self.is_lazy:
            probs = self._pipeline.probs(self._row_scores(row))[0].cpu()
        else:
            if self._probs is None:
                scores = self._pipeline.scores(self._logits, self._paths)
                self._probs = self._pipeline.probs(scores).cpu()
            probs = self._probs[row]
        # One score that is not a number, or none above -inf, makes the whole softmax NaN.
        if math.isnan(float(probs[0])):
            best = float(self._row_scores(row).amax())
            self._fail(row, "the scores have no softmax", is_empty=best == -math.inf)
        return probs

    @property
    def is_greedy(self) -> bool:
        """Whether the target's token is the highest score rather than a draw."""
        return self._pipeline.is_greedy

    def spread(self, row: int) -> Tensor:
        """Return the distribution [V] that the scores of this row make, on the CPU.

        The one that is drawn from, or, where decoding is greedy, the one at temperature 1.
        """
        return self._row_scores(row)[0].softmax(dim=-1).cpu()

    def _row_scores(self, row: int) -> Tensor:
        """Return one row's scores [1, V]; custom processors see a row once, however it is used."""
        if row not in self._scores:
            scores = self._pipeline.scores(self._logits[row : row + 1], [self._paths[row]])
            self._scores[row] = scores
        return self._scores[row]

    def _draw(self, row: int) -> tuple[int, float]:
        scores = self._row_scores(row)[0]
        if self._pipeline.is_greedy:
            return highest(scores)
        return draw_row(scores, self._noise, Stream.TARGET, self._position_of(row))

    def _winners(self) -> Tensor:
        """Return [2, 1 + N]: each row's token and what it won by, still on the device."""
        keys = self._pipeline.scores(self._logits, self._paths)
        if not self._pipeline.is_greedy:
            positions = [self._position_of(row) for row in range(len(self._paths))]
            keys = race_keys(keys, self._noise, Stream.TARGET, positions)
        best, tokens = keys.max(dim=-1)
        return torch.stack((tokens.to(best.dtype), best))  # float32 holds ids below 2^24 exactly

    def _position_of(self, row: int) -> int:
        return self._position + len(self._paths[row])

    def _fail(self, row: int, reason: str, *, is_empty: bool) -> NoReturn:
        """Raise; that no score is above -inf (`is_empty`) may be a grammar's doing."""
        if is_empty and self._pipeline.grammar is not None:
            reason = self._pipeline.grammar.dead_end(self._paths[row])
        position = self._position_of(row)
        raise NumericsError(f"{self._request}: no token to choose at position {position}: {reason}")


def draw_rows(requests: Sequence[SampledRows]) -> None:
    """Draw all rows of several requests, with one copy from the device for all of them.

    Changes nothing but the time at which work is done; requests whose rows are lazy are left alone.
    """
    eager = [rows for rows in requests if not rows.is_lazy and rows._drawn is None]
    if not eager:
        return
    tokens, keys = torch.cat([rows._winners() for rows in eager], dim=1).tolist()
    drawn = [(int(token), key) for token, key in zip(tokens, keys, strict=True)]
    start = 0
    for rows in eager:
        end = start + len(rows._paths)
        rows._drawn = drawn[start:end]
        start = end
