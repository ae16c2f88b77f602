"""Prompts the target writes itself: it is given the chat template up to where the user speaks.

What a chat model expects of its users is in its weights; a text sampled from there is a prompt of
the kind it was trained on (Magpie, Xu et al. 2024, 2406.08464).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase

from outrider.errors import OptionError
from outrider.journal import Journal, Record, parse_ids, read_journal
from outrider.sampling.params import SamplingParams
from outrider.training.prompts import prompt_key
from outrider.training.writing import (
    describe_params,
    describe_target,
    require_bare,
    seed_of,
    write_all,
)

if TYPE_CHECKING:
    from outrider.decoder import Decoder

_KIND = "self-written prompts"
_MARKER = "outriderwritesthis"
_ROUND = 16  # times the engine's batch: drawn before any is given out
_PATIENCE = 200  # tries in a row without a prompt

DEFAULT_PARAMS = SamplingParams(temperature=1.0, top_p=0.95, max_new_tokens=512, seed=0)
"""As the target speaks, less the tail that is mostly noise."""


@dataclass(frozen=True, slots=True)
class SelfPrompt:
    """A user's turn the target wrote, and the ids after which its answer begins.

    `index` is its place among all tries, of which some gave no prompt.
    """

    index: int
    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UserTurn:
    """Where a chat template lets the user speak: the ids before, and what ends the turn."""

    opening: tuple[int, ...]
    stop_ids: tuple[int, ...]
    stop: tuple[str, ...]

    def ending(self, params: SamplingParams) -> SamplingParams:
        """Return params with which a request ends where the turn does."""
        return replace(
            params,
            stop_token_ids=(*params.stop_token_ids, *self.stop_ids),
            stop=(*params.stop, *self.stop),
        )

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase | None) -> UserTurn:
        """Find the turn by rendering a marker; raises OptionError where that does not work."""
        if tokenizer is None or not getattr(tokenizer, "chat_template", None):
            raise OptionError("prompts cannot be self-written: the model has no chat template")
        rendered: Any = tokenizer.apply_chat_template(
            [{"role": "user", "content": _MARKER}], tokenize=False, add_generation_prompt=True
        )
        parts = str(rendered).split(_MARKER)
        if len(parts) != 2:
            raise OptionError(
                "prompts cannot be self-written: the chat template holds the user's message "
                f"{len(parts) - 1} times, expected once"
            )
        # A space at the end would be a token of its own, which no user's text begins after.
        opening = _encode(parts[0].rstrip(" "), tokenizer)
        ending = parts[1].strip()
        if not opening or not ending:
            side = "before" if not opening else "after"
            raise OptionError(
                f"prompts cannot be self-written: the chat template has nothing {side} the user's "
                "message"
            )
        first = _encode(ending, tokenizer)[0]
        if first in _special_tokens(tokenizer):
            return cls(opening, (first,), ())
        for token in _special_tokens(tokenizer).values():  # they have no text to be found
            ending = ending.split(token)[0]
        return cls(opening, (), (ending.splitlines()[0].strip(),))


def self_prompts(
    decoder: Decoder,
    count: int,
    *,
    params: SamplingParams = DEFAULT_PARAMS,
    start: int = 0,
    known: Collection[str] = (),
) -> Iterator[SelfPrompt]:
    """Let the target write `count` prompts, from try `start` on, without those of `known` keys.

    Try `i` draws with a seed that follows from `params.seed` (None: 0) and `i`, so a run that goes
    on where another stopped writes what that one would have. Turns that are empty, were cut at the
    length limit, hold a special token or came before are dropped.

    Raises OptionError where the model has no chat template or writes nothing that can be used.
    """
    turn = UserTurn.of(decoder.tokenizer)
    seen = set(known)
    fruitless = 0
    while count > 0:
        batch = decoder.engine.max_batch
        tries = range(start, start + min(_ROUND * batch, count + batch))
        start = tries.stop
        for found in _tries(decoder, turn, params, tries):
            fruitless += 1
            if found is not None and prompt_key(found.ids) not in seen:
                seen.add(prompt_key(found.ids))
                fruitless = 0
                count -= 1
                yield found
            if not count:
                return
            if fruitless == _PATIENCE:
                raise OptionError(
                    f"prompts cannot be self-written: the last {_PATIENCE} tries gave none that "
                    "is new, ends by itself and is not empty"
                )


def write_self_prompts(
    decoder: Decoder,
    path: Path,
    count: int,
    *,
    params: SamplingParams = DEFAULT_PARAMS,
    on_progress: Callable[[int], object] | None = None,
) -> list[tuple[int, ...]]:
    """Return the ids of the first `count` prompts the target writes, kept in the file at `path`.

    What the file holds already is not written again, wherever an earlier run was stopped.
    `on_progress` is told how many there are. Raises OptionError, as `self_prompts` does and for a
    file made with another target or other params.
    """
    require_bare(params)
    params = replace(params, seed=params.seed or 0)
    with Journal(path, _KIND, describe_target(decoder) | describe_params(params)) as journal:
        found = list(read_journal(path, _KIND, _parse))
        start = found[-1].index + 1 if found else 0
        keys = {prompt_key(prompt.ids) for prompt in found}
        left = count - len(found)
        for prompt in self_prompts(decoder, left, params=params, start=start, known=keys):
            journal.append(asdict(prompt))
            found.append(prompt)
            if on_progress is not None:
                on_progress(len(found))
    return [prompt.ids for prompt in found[:count]]


def _tries(
    decoder: Decoder, turn: UserTurn, params: SamplingParams, tries: range
) -> list[SelfPrompt | None]:
    """Return what each try gave, None where it is no prompt."""
    params = turn.ending(params)
    seeds = [seed_of(params.seed or 0, index) for index in tries]
    results = dict(write_all(decoder, [turn.opening] * len(tries), params, seeds))
    tokenizer = decoder.tokenizer
    assert tokenizer is not None
    special = _special_tokens(tokenizer).keys()
    found: list[SelfPrompt | None] = []
    for place, index in enumerate(tries):
        result = results[place]
        written = result.token_ids[:-1]
        is_whole = result.finish_reason == "stop" and special.isdisjoint(written)
        text = result.text if params.stop else str(tokenizer.decode(list(written)))
        found.append(_prompt(decoder, index, text.strip()) if is_whole else None)
    return found


def _prompt(decoder: Decoder, index: int, text: str) -> SelfPrompt | None:
    """Put a text into the template; None if it is empty, or too long to be answered."""
    if not text:
        return None
    # Encoded anew, as a user's text would be: sampling may split a word in an unusual way.
    ids = decoder.encode(text, chat=True)
    fits = len(ids) < decoder.engine.target.max_positions
    return SelfPrompt(index, text, ids) if fits else None


def _parse(record: Record) -> SelfPrompt:
    return SelfPrompt(int(record["index"]), str(record["text"]), parse_ids(record["ids"]))


def _encode(text: str, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    encoded: Any = tokenizer(text, add_special_tokens=False)
    return tuple(encoded["input_ids"])


def _special_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    added = tokenizer.added_tokens_decoder
    return {token_id: token.content for token_id, token in added.items() if token.special}
