"""Numbers and dates in words, between languages: sentences to translate, without end.

Nothing is stored: a sentence and its translation are written from the same numbers by the rules of
each language, a word a token.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

_ENGLISH = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_ENGLISH_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_ENGLISH_ORDINALS = [
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
    "twentieth",
]
_ENGLISH_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]

_ENGLISH_SCALES = ["trillion", "billion", "million", "thousand"]

_GERMAN = [
    "null",
    "eins",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
]
_GERMAN_TENS = [
    "zwanzig",
    "dreißig",
    "vierzig",
    "fünfzig",
    "sechzig",
    "siebzig",
    "achtzig",
    "neunzig",
]
_GERMAN_ORDINALS = [
    "erste",
    "zweite",
    "dritte",
    "vierte",
    "fünfte",
    "sechste",
    "siebte",
    "achte",
    "neunte",
    "zehnte",
    "elfte",
    "zwölfte",
    "dreizehnte",
    "vierzehnte",
    "fünfzehnte",
    "sechzehnte",
    "siebzehnte",
    "achtzehnte",
    "neunzehnte",
    "zwanzigste",
]
_GERMAN_MONTHS = [
    "Januar",
    "Februar",
    "März",
    "April",
    "Mai",
    "Juni",
    "Juli",
    "August",
    "September",
    "Oktober",
    "November",
    "Dezember",
]

_GERMAN_SCALES = [
    ("Billion", "Billionen"),
    ("Milliarde", "Milliarden"),
    ("Million", "Millionen"),
    ("tausend", "tausend"),
]

_FRENCH = [
    "zéro",
    "un",
    "deux",
    "trois",
    "quatre",
    "cinq",
    "six",
    "sept",
    "huit",
    "neuf",
    "dix",
    "onze",
    "douze",
    "treize",
    "quatorze",
    "quinze",
    "seize",
]
_FRENCH_TENS = ["vingt", "trente", "quarante", "cinquante", "soixante"]
_FRENCH_MONTHS = [
    "janvier",
    "février",
    "mars",
    "avril",
    "mai",
    "juin",
    "juillet",
    "août",
    "septembre",
    "octobre",
    "novembre",
    "décembre",
]

_FRENCH_SCALES = [
    ("billion", "billions"),
    ("milliard", "milliards"),
    ("million", "millions"),
    ("mille", "mille"),
]

Words = list[str]
_Scale = TypeVar("_Scale")


def english_number(number: int) -> Words:
    """Return a number below 10^15 in English, by the short scale."""
    words: Words = []
    for group, scale in _thousands(number, _ENGLISH_SCALES):
        words += [*_below_thousand_in_english(group), scale]
    rest = number % 1000
    if words and not rest:
        return words
    joint = ["and"] if words and rest < 100 else []
    return [*words, *joint, *_below_thousand_in_english(rest)]


def _below_thousand_in_english(number: int) -> Words:
    if number >= 100:
        tail = ["and", *_below_thousand_in_english(number % 100)] if number % 100 else []
        return [_ENGLISH[number // 100], "hundred", *tail]
    if number < 20:
        return [_ENGLISH[number]]
    tail = [_ENGLISH[number % 10]] if number % 10 else []
    return [_ENGLISH_TENS[number // 10 - 2], *tail]


def german_number(number: int, *, is_last: bool = True) -> Words:
    """Return a number below 10^15 in German; "ein" becomes "eins" at the very end."""
    words: Words = []
    for group, (one, many) in _thousands(number, _GERMAN_SCALES):
        if group == 1:
            words += ["ein" if one == "tausend" else "eine", one]
        else:
            words += [*_below_thousand_in_german(group, is_last=False), many]
    if words and not number % 1000:
        return words
    return words + _below_thousand_in_german(number % 1000, is_last=is_last)


def _below_thousand_in_german(number: int, *, is_last: bool) -> Words:
    if number >= 100:
        tail = _below_thousand_in_german(number % 100, is_last=is_last) if number % 100 else []
        return [*_below_thousand_in_german(number // 100, is_last=False), "hundert", *tail]
    if number == 1 and not is_last:
        return ["ein"]
    if number < 20:
        return [_GERMAN[number]]
    head = [*_below_thousand_in_german(number % 10, is_last=False), "und"] if number % 10 else []
    return [*head, _GERMAN_TENS[number // 10 - 2]]


def french_number(number: int) -> Words:
    """Return a number below 10^15 in French; "cents" and "vingts" lose their s before "mille"."""
    words: Words = []
    for group, (one, many) in _thousands(number, _FRENCH_SCALES):
        said = _below_thousand_in_french(group)
        if one == "mille":
            singular = {"cents": "cent", "vingts": "vingt"}
            said = [singular.get(word, word) for word in said] if group > 1 else []
        words += [*said, one if group == 1 else many]
    if words and not number % 1000:
        return words
    return words + _below_thousand_in_french(number % 1000)


def _below_thousand_in_french(number: int) -> Words:
    if number >= 100:
        head = [_FRENCH[number // 100]] if number >= 200 else []
        if number % 100 == 0:
            return [*head, "cents" if head else "cent"]
        return [*head, "cent", *_below_thousand_in_french(number % 100)]
    if number < 17:
        return [_FRENCH[number]]
    if number < 20:
        return ["dix", _FRENCH[number - 10]]
    if number >= 80:
        tail = _below_thousand_in_french(number - 80) if number > 80 else []
        return ["quatre", "vingt" if tail else "vingts", *tail]
    tens = min(number // 10, 6)
    rest = number - 10 * tens
    joint = ["et"] if rest in (1, 11) else []
    tail = joint + _below_thousand_in_french(rest) if rest else []
    return [_FRENCH_TENS[tens - 2], *tail]


def _thousands(number: int, scales: Sequence[_Scale]) -> Iterator[tuple[int, _Scale]]:
    """Yield how many there are of each scale, the greatest first, but for those there are none of.

    A scale is a thousand of the next, and the last is the thousand itself.
    """
    for power, scale in zip(range(len(scales), 0, -1), scales, strict=True):
        if group := number // 1000**power % 1000:
            yield group, scale


def english_date(day: int, month: int, year: int) -> Words:
    """Return a date in English: the month first, the year by hundreds."""
    tens = [_ENGLISH_TENS[day // 10 - 2]] if day > 20 and day % 10 else []
    ordinal = "thirtieth" if day == 30 else _ENGLISH_ORDINALS[(day % 10 if tens else day) - 1]
    rest = english_number(year % 100) if year % 100 else ["hundred"]
    return [_ENGLISH_MONTHS[month - 1], *tens, ordinal, *english_number(year // 100), *rest]


def german_date(day: int, month: int, year: int) -> Words:
    """Return a date in German: the day first, and units before tens in all of it."""
    if day <= 20:
        ordinal = [_GERMAN_ORDINALS[day - 1]]
    else:
        head = [*german_number(day % 10, is_last=False), "und"] if day % 10 else []
        ordinal = [*head, "zwanzigste" if day < 30 else "dreißigste"]
    century = [*german_number(year // 100), "hundert"]
    rest = german_number(year % 100) if year % 100 else []
    return ["der", *ordinal, _GERMAN_MONTHS[month - 1], *century, *rest]


def french_date(day: int, month: int, year: int) -> Words:
    """Return a date in French: cardinals but for the first, the year as one number."""
    number = ["premier"] if day == 1 else french_number(day)
    return ["le", *number, _FRENCH_MONTHS[month - 1], *french_number(year)]


@dataclass(frozen=True, slots=True)
class Language:
    """How a language says numbers, and dates of the years 1100 to 1999."""

    name: str
    number: Callable[[int], Words]
    date: Callable[[int, int, int], Words]


LANGUAGES = {
    one.name: one
    for one in (
        Language("en", english_number, english_date),
        Language("de", german_number, german_date),
        Language("fr", french_number, french_date),
    )
}

Pair = tuple[str, str]
"""The names of the languages to translate from and into."""


def sentences(pair: Pair, seed: int) -> Iterator[tuple[str, str]]:
    """Yield a date and a number in words, and the same in another language, without end."""
    draw = random.Random(seed)
    while True:
        date = (draw.randint(1, 28), draw.randint(1, 12), draw.randint(1100, 1999))
        number = draw.randrange(10 ** draw.randint(1, 9))
        source, wanted = (
            " ".join([*LANGUAGES[name].date(*date), ",", *LANGUAGES[name].number(number)])
            for name in pair
        )
        yield source, wanted


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer that all models of the task share: a word an id, an end behind each."""
    words = {word for language in LANGUAGES.values() for word in _words(language)}
    tokens = ["<pad>", "</s>", "<unk>", ",", *sorted(words)]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    backend = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = WhitespaceSplit()
    backend.post_processor = TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", vocabulary["</s>"])]
    )
    make: Any = PreTrainedTokenizerFast  # untyped
    tokenizer: PreTrainedTokenizerFast = make(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    return tokenizer


def _words(language: Language) -> set[str]:
    numbers = [*range(1000), *(count * 1000**power for count in (1, 2) for power in range(1, 5))]
    said = [language.number(number) for number in numbers]
    said += [language.date(day, month, 1999) for day in range(1, 32) for month in range(1, 13)]
    return {word for words in said for word in words}
