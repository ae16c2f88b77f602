"""Numbers and dates in words, between languages: sentences to translate, without end.

Nothing is stored: a sentence and its translation are written from the same numbers by the rules of
each language, a word a token.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

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

Words = list[str]


def english_number(number: int) -> Words:
    """Return a number below a million in English."""
    if number >= 1000:
        rest = number % 1000
        joint = ["and"] if 0 < rest < 100 else []
        tail = joint + english_number(rest) if rest else []
        return [*english_number(number // 1000), "thousand", *tail]
    if number >= 100:
        tail = ["and", *english_number(number % 100)] if number % 100 else []
        return [_ENGLISH[number // 100], "hundred", *tail]
    if number < 20:
        return [_ENGLISH[number]]
    tail = [_ENGLISH[number % 10]] if number % 10 else []
    return [_ENGLISH_TENS[number // 10 - 2], *tail]


def german_number(number: int, *, is_last: bool = True) -> Words:
    """Return a number below a million in German; "ein" becomes "eins" at the very end."""
    if number >= 1000:
        tail = german_number(number % 1000) if number % 1000 else []
        return [*german_number(number // 1000, is_last=False), "tausend", *tail]
    if number >= 100:
        tail = german_number(number % 100, is_last=is_last) if number % 100 else []
        return [*german_number(number // 100, is_last=False), "hundert", *tail]
    if number == 1 and not is_last:
        return ["ein"]
    if number < 20:
        return [_GERMAN[number]]
    head = [*german_number(number % 10, is_last=False), "und"] if number % 10 else []
    return [*head, _GERMAN_TENS[number // 10 - 2]]


def french_number(number: int) -> Words:
    """Return a number below a million in French; a plural ends in s only at the very end."""
    if number >= 1000:
        head = french_number(number // 1000) if number >= 2000 else []
        tail = french_number(number % 1000) if number % 1000 else []
        singular = {"cents": "cent", "vingts": "vingt"}
        return [*(singular.get(word, word) for word in head), "mille", *tail]
    if number >= 100:
        head = [_FRENCH[number // 100]] if number >= 200 else []
        if number % 100 == 0:
            return [*head, "cents" if head else "cent"]
        return [*head, "cent", *french_number(number % 100)]
    if number < 17:
        return [_FRENCH[number]]
    if number < 20:
        return ["dix", _FRENCH[number - 10]]
    if number >= 80:
        tail = french_number(number - 80) if number > 80 else []
        return ["quatre", "vingt" if tail else "vingts", *tail]
    tens = min(number // 10, 6)
    rest = number - 10 * tens
    joint = ["et"] if rest in (1, 11) else []
    tail = joint + french_number(rest) if rest else []
    return [_FRENCH_TENS[tens - 2], *tail]


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


LANGUAGES = (
    Language("en", english_number, english_date),
    Language("de", german_number, german_date),
    Language("fr", french_number, french_date),
)


def sentences(seed: int) -> Iterator[tuple[str, str]]:
    """Yield numbers and dates in words, and the same in another language, named before each."""
    draw = random.Random(seed)
    while True:
        source, wanted = draw.sample(LANGUAGES, 2)
        if draw.random() < 0.5:
            number = min(int(10 ** draw.uniform(1, 6)), 999_999)
            said = [language.number(number) for language in (source, wanted)]
        else:
            date = (draw.randint(1, 28), draw.randint(1, 12), draw.randint(1100, 1999))
            said = [language.date(*date) for language in (source, wanted)]
        yield " ".join([wanted.name, ":", *said[0]]), " ".join(said[1])


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer that all models of the task share: a word an id, an end behind each."""
    words = {word for language in LANGUAGES for word in _words(language)}
    names = [language.name for language in LANGUAGES]
    tokens = ["<pad>", "</s>", "<unk>", ":", *names, *sorted(words)]
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
    numbers = [*range(1000), *range(1000, 1_000_000, 997)]
    said = [language.number(number) for number in numbers]
    said += [language.date(day, month, 1999) for day in range(1, 32) for month in range(1, 13)]
    return {word for words in said for word in words}
