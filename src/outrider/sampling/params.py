"""What a caller may ask of one request: how tokens are drawn, and when to stop."""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NoReturn

from outrider.errors import OptionError
from outrider.sampling.grammar import Grammar

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MAX_LOGPROBS = 20
MAX_SEED = 2**63 - 1
MIN_TEMPERATURE = 1e-6
"""Smallest temperature above 0: below it scores would overflow rather than sharpen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """Options of one request; every default is neutral, and decoding greedy.

    Choice `i` of `n` decodes as a request of its own with seed `seed + i` (`for_choice`).
    Penalties follow Transformers (`repetition_penalty`, over prompt and output) and OpenAI
    (`presence_penalty`, `frequency_penalty`, over the output alone). `logits_processors` are called
    as in Transformers, `(input_ids [1, L], scores [1, V]) -> scores`; so are `stopping_criteria`,
    whose truth ends the request. The output belongs to the language of a `grammar`, unless
    something else ends it early. Any value out of its range is an `OptionError`.
    """

    temperature: float = 0.0
    """0 is greedy: its own exact branch, to which top_k, top_p and min_p make no difference."""
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    bad_words: tuple[tuple[int, ...], ...] = ()
    min_new_tokens: int = 0
    max_new_tokens: int = 256
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None
    grammar: Grammar | None = None
    logits_processors: tuple[Any, ...] = ()
    stopping_criteria: tuple[Callable[..., Any], ...] = ()

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        if self.min_new_tokens > self.max_new_tokens:
            allowed = f"an integer from 0 to max_new_tokens ({self.max_new_tokens})"
            _refuse("min_new_tokens", self.min_new_tokens, allowed)

    @property
    def is_greedy(self) -> bool:
        """Whether each token is the highest score rather than a draw."""
        return self.temperature == 0

    def with_options(self, **options: Any) -> SamplingParams:
        """Return these params with some options changed; an unknown name is an `OptionError`."""
        for name in options:
            if name not in _CHECKS:
                near = difflib.get_close_matches(name, _CHECKS, n=1, cutoff=0.5)
                hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(_CHECKS)}"
                raise OptionError(f"unknown option {name}{hint}")
        return replace(self, **options)

    def for_choice(self, index: int) -> SamplingParams:
        """Return the params with which choice `index` of `n` decodes, alone and with `seed + i`."""
        if not 0 <= index < self.n:
            raise OptionError(f"choice is {index}: expected 0 to n - 1 ({self.n - 1})")
        # Wrap rather than fail: the last seeds of the range have successors too.
        seed = None if self.seed is None else (self.seed + index) % (MAX_SEED + 1)
        return replace(self, n=1, seed=seed)

    def for_tokenizer(self, tokenizer: PreTrainedTokenizerBase | None) -> SamplingParams:
        """Return the params with the grammar, if there is one, bound to a tokenizer.

        Raises OptionError as `Grammar.bound` does.
        """
        if self.grammar is None:
            return self
        return replace(self, grammar=self.grammar.bound(tokenizer))


_Check = Callable[[str, Any], Any]


def _refuse(name: str, value: object, allowed: str) -> NoReturn:
    raise OptionError(f"{name} is {value!r}: expected {allowed}")


def _as_int(value: Any) -> int | None:
    """Return an integer of any library as an int, and None for everything else, bools included."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _as_float(value: Any) -> float:
    """Return a number as a float, and NaN (which is in no range) for everything else."""
    if isinstance(value, (bool, str, bytes)):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _integer(low: int, high: int | None = None, *, optional: bool = False) -> _Check:
    allowed = f"an integer of at least {low}" if high is None else f"an integer, {low} to {high}"
    allowed += " or None" if optional else ""

    def check(name: str, value: Any) -> int | None:
        if optional and value is None:
            return None
        number = _as_int(value)
        if number is None or number < low or (high is not None and number > high):
            _refuse(name, value, allowed)
        return number

    return check


def _number(accepts: Callable[[float], bool], allowed: str) -> _Check:
    def check(name: str, value: Any) -> float:
        number = _as_float(value)
        if not accepts(number):
            _refuse(name, value, allowed)
        return number

    return check


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        _refuse(name, value, "True or False")
    return value


def _items(name: str, value: Any, allowed: str) -> tuple[Any, ...]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        _refuse(name, value, allowed)
    return tuple(value)


def _token_ids(name: str, value: Any) -> tuple[int, ...]:
    allowed = "a list of token ids (integers of at least 0)"
    ids = tuple(_as_int(item) for item in _items(name, value, allowed))
    if any(token is None or token < 0 for token in ids):
        _refuse(name, value, allowed)
    return tuple(token for token in ids if token is not None)


def _words(name: str, value: Any) -> tuple[tuple[int, ...], ...]:
    allowed = "a list of non-empty lists of token ids"
    words = tuple(_token_ids(name, word) for word in _items(name, value, allowed))
    if not all(words):
        _refuse(name, value, allowed)
    return words


def _texts(name: str, value: Any) -> tuple[str, ...]:
    allowed = "a non-empty text, or a list of them"
    texts = (value,) if isinstance(value, str) else _items(name, value, allowed)
    if not all(isinstance(text, str) and text for text in texts):
        _refuse(name, value, allowed)
    return texts


def _bias(name: str, value: Any) -> dict[int, float]:
    allowed = "a mapping from token ids to numbers (-inf bans a token)"
    if not isinstance(value, Mapping):
        _refuse(name, value, allowed)
    bias: dict[int, float] = {}
    for key, amount in value.items():
        token, number = _as_int(key), _as_float(amount)
        if token is None or token < 0 or not number < math.inf:
            _refuse(name, {key: amount}, allowed)
        bias[token] = number
    return bias


def _grammar(name: str, value: Any) -> Grammar | None:
    if value is not None and not isinstance(value, Grammar):
        _refuse(name, value, "a Grammar, such as Grammar.json_schema({...}), or None")
    return value


def _callables(name: str, value: Any) -> tuple[Any, ...]:
    allowed = "a list of callables"
    items = _items(name, value, allowed)
    if not all(callable(item) for item in items):
        _refuse(name, value, allowed)
    return items


_PENALTY = _number(lambda x: -2 <= x <= 2, "a number from -2 to 2")
_SHARE = _number(lambda x: 0 <= x <= 1, "a number from 0 to 1")

_CHECKS: dict[str, _Check] = {
    "temperature": _number(
        lambda x: x == 0 or MIN_TEMPERATURE <= x < math.inf,
        f"0 (greedy) or a finite number of at least {MIN_TEMPERATURE}",
    ),
    "top_k": _integer(0),
    "top_p": _SHARE,
    "min_p": _SHARE,
    "repetition_penalty": _number(lambda x: 0 < x < math.inf, "a finite number above 0"),
    "presence_penalty": _PENALTY,
    "frequency_penalty": _PENALTY,
    "logit_bias": _bias,
    "bad_words": _words,
    "max_new_tokens": _integer(1),
    "min_new_tokens": _integer(0),
    "stop": _texts,
    "stop_token_ids": _token_ids,
    "ignore_eos": _flag,
    "seed": _integer(0, MAX_SEED, optional=True),
    "n": _integer(1),
    "logprobs": _integer(0, MAX_LOGPROBS, optional=True),
    "grammar": _grammar,
    "logits_processors": _callables,
    "stopping_criteria": _callables,
}
assert set(_CHECKS) == {option.name for option in fields(SamplingParams)}
