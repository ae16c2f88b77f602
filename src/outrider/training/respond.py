"""The target answers prompts, into a file that a run may leave and take up again anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from outrider.errors import OptionError
from outrider.journal import Journal, Record, journal_header, parse_ids, read_journal
from outrider.sampling.params import SamplingParams
from outrider.training.base import Sample
from outrider.training.prompts import prompt_key
from outrider.training.writing import (
    describe_params,
    describe_target,
    require_bare,
    seed_of,
    write_all,
)
from outrider.types import FinishReason, TokenIds

if TYPE_CHECKING:
    from outrider.decoder import Decoder

_KIND = "answers"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the target said to a prompt; `ids` end with the end of the text where it came to one."""

    key: str
    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    finish_reason: FinishReason
    seed: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the answering is, what earlier runs did included."""

    answers: int
    prompts: int
    tokens: int
    seconds_left: float | None
    """At the speed of this run; None before it has written anything."""


def respond(
    decoder: Decoder,
    prompts: Sequence[TokenIds],
    path: Path,
    *,
    params: SamplingParams | None = None,
    max_tokens: int | None = None,
    on_progress: Callable[[Progress], object] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Progress:
    """Let the target answer prompts, and append each answer to the JSONL file at `path`.

    Prompts that the file already answers are passed over, and so is a prompt that comes twice.
    `params` are the model's own by default; a prompt's seed follows from theirs (None: 0) and the
    prompt, so that answers do not depend on where a run was stopped. With `max_tokens` it ends
    once the answers have so many tokens; those still being written then are let go.

    Raises OptionError for a file made with another target or other params, and for `n` or
    `logprobs`, which answers do not have; PromptError for a prompt the target cannot continue.
    """
    params = decoder.default_params if params is None else params
    require_bare(params)
    params = replace(params, seed=params.seed or 0)
    if max_tokens is not None and max_tokens < 1:
        raise OptionError(f"max_tokens is {max_tokens}, must be at least 1")
    wanted = {prompt_key(prompt): tuple(prompt) for prompt in prompts}
    with Journal(path, _KIND, describe_target(decoder) | describe_params(params)) as journal:
        known = {a.key: len(a.ids) for a in read_journal(path, _KIND, _parse) if a.key in wanted}
        tally = _Tally(len(wanted), len(known), sum(known.values()), max_tokens, clock)
        left = [prompt for key, prompt in wanted.items() if key not in known]
        with closing(_answers(decoder, left, params)) as answers:
            while not tally.is_full and (answer := next(answers, None)) is not None:
                journal.append(asdict(answer))
                tally.add(len(answer.ids))
                if on_progress is not None:
                    on_progress(tally.progress)
    return tally.progress


def holds_answers(path: Path) -> bool:
    """Whether a file holds answers, and not prompts that are still to be answered."""
    return path.is_file() and journal_header(path, _KIND) is not None


def read_answers(path: Path, decoder: Decoder | None = None) -> list[Sample]:
    """Return the answers in a file as samples; raises LoadError, with file and line.

    Raises OptionError for answers of another target than a decoder's, if one is given.
    """
    if decoder is not None:
        header = journal_header(path, _KIND) or {}
        for name, value in describe_target(decoder).items():
            if header.get(name) != value:
                raise OptionError(
                    f"the answers in {str(path)!r} are of another target: its {name} is "
                    f"{header.get(name)!r}, not {value!r}"
                )
    # Millions of ids, of which few are different: each is held once.
    one: dict[int, int] = {}
    return [
        Sample(
            tuple(one.setdefault(token, token) for token in (*answer.prompt_ids, *answer.ids)),
            len(answer.prompt_ids),
        )
        for answer in read_journal(path, _KIND, _parse)
    ]


def _answers(
    decoder: Decoder, prompts: Sequence[TokenIds], params: SamplingParams
) -> Generator[Answer, None, None]:
    keys = [prompt_key(prompt) for prompt in prompts]
    seeds = [seed_of(params.seed or 0, key) for key in keys]
    with closing(write_all(decoder, prompts, params, seeds)) as run:
        for index, result in run:
            yield Answer(
                keys[index],
                result.prompt_ids,
                result.token_ids,
                result.finish_reason,
                result.seed,
            )


class _Tally:
    """Counts answers and tokens, and foretells when they will be enough."""

    def __init__(
        self,
        prompts: int,
        answers: int,
        tokens: int,
        max_tokens: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._prompts = prompts
        self._max_tokens = max_tokens
        self._clock = clock
        self._began = (clock(), answers, tokens)
        self._answers = answers
        self._tokens = tokens

    def add(self, tokens: int) -> None:
        self._answers += 1
        self._tokens += tokens

    @property
    def is_full(self) -> bool:
        return self._max_tokens is not None and self._tokens >= self._max_tokens

    @property
    def progress(self) -> Progress:
        return Progress(self._answers, self._prompts, self._tokens, self._seconds_left())

    def _seconds_left(self) -> float | None:
        started, answers, tokens = self._began
        if self._answers == answers:
            return None
        elapsed = self._clock() - started
        left = elapsed * (self._prompts - self._answers) / (self._answers - answers)
        if self._max_tokens is not None and self._tokens > tokens:
            room = max(0, self._max_tokens - self._tokens)
            left = min(left, elapsed * room / (self._tokens - tokens))
        return left


def _parse(record: Record) -> Answer:
    reason: FinishReason = record["finish_reason"]
    if reason not in get_args(FinishReason):
        raise ValueError(f"finish_reason is {reason!r}")
    answer = Answer(
        key=str(record["key"]),
        prompt_ids=parse_ids(record["prompt_ids"]),
        ids=parse_ids(record["ids"]),
        finish_reason=reason,
        seed=int(record["seed"]),
    )
    if answer.key != prompt_key(answer.prompt_ids):
        raise ValueError("the key is not that of the prompt")
    return answer
