"""Speculative against plain decoding of one prompt: the same tokens, and how much faster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outrider.difference import find_difference
from outrider.errors import OptionError

if TYPE_CHECKING:
    from outrider.cli.job import Job
    from outrider.engine.result import Result

_WARM_UP_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Comparison:
    """What plain decoding did with the same request."""

    plain_tokens_per_second: float | None
    speedup: float | None
    difference: str | None
    """Where the token ids part, in words; None if they are equal over their whole length."""

    @property
    def identical(self) -> bool:
        """Whether both gave the same token ids."""
        return self.difference is None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        values: dict[str, Any] = {
            "plain_tokens_per_second": self.plain_tokens_per_second,
            "speedup": self.speedup,
            "identical": self.identical,
        }
        return values if self.identical else values | {"difference": self.difference}


def check_comparable(job: Job, rule: str | None) -> None:
    """Raise OptionError where equal tokens are not promised, so that "no" always means a fault."""
    temperature = job.decoder.default_params.with_options(**job.options).temperature
    if rule not in (None, "match") and temperature > 0:
        raise OptionError(
            f"--compare with temperature {temperature:g} needs --rule match: {rule} keeps the law "
            "of the text, not its tokens"
        )


def warm_up(job: Job) -> None:
    """Write a few tokens with target and drafter, so that neither side pays for the first pass."""
    job.with_options(max_new_tokens=_WARM_UP_TOKENS, min_new_tokens=0).result()


def compare_with_plain(job: Job, result: Result) -> Comparison:
    """Repeat a job without a drafter, with the seed it ran with."""
    plain = job.with_options(seed=result.seed).without_drafter().result()
    speed, plain_speed = result.stats.tokens_per_second, plain.stats.tokens_per_second
    return Comparison(
        plain_tokens_per_second=plain_speed,
        speedup=speed / plain_speed if speed and plain_speed else None,
        difference=find_difference(result.token_ids, plain.token_ids),
    )
