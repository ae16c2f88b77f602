"""Prompts of many kinds to train on: chat, code, sums, edits and extracts, made up from a seed.

They are put together from parts written here and from functions of Python's own library, which is
on every machine this runs on. So a drafter can be trained for what people ask without a data set.
"""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random

from outrider.training.questions import chat_question

_MODULES = (
    *("argparse", "ast", "base64", "bisect", "calendar", "collections/__init__", "colorsys"),
    *("configparser", "copy", "csv", "dataclasses", "difflib", "fnmatch", "fractions"),
    *("functools", "glob", "gzip", "heapq", "html/__init__", "inspect", "ipaddress"),
    *("json/decoder", "json/encoder", "linecache", "mimetypes", "ntpath", "numbers", "pathlib"),
    *("pprint", "posixpath", "queue", "random", "reprlib", "sched", "shelve", "shlex", "shutil"),
    *("statistics", "string", "tempfile", "textwrap", "timeit", "tokenize", "traceback"),
    *("types", "urllib/parse", "uuid", "warnings", "wave", "weakref", "zipfile"),
)
_SHORTEST, _LONGEST = 120, 1100  # characters of a function that is quoted


def task_prompts(seed: int, first: int = 0) -> Iterator[str]:
    """Yield user messages without end, the task changing from one to the next.

    The prompt of a number is always the same for a seed, so that a run can go on at any.
    """
    number = first
    while True:
        random = Random(f"{seed}/{number}")
        yield _TASKS[number % len(_TASKS)](random)
        number += 1


# -- code -------------------------------------------------------------------------------------

_VERBS = ("returns", "finds", "computes", "checks for", "collects", "counts", "removes", "sorts")
_THINGS = (
    *("the largest number in a list", "all vowels of a string", "duplicates of a list"),
    *("the words of a sentence by length", "whether a string is a palindrome"),
    *("the sum of the digits of a number", "the common elements of two lists"),
    *("the even numbers of a list", "the most frequent character of a string"),
    *("the factorial of a number", "the n-th Fibonacci number", "the prime factors of a number"),
    *("the average of a list of numbers", "the keys of a dictionary that have equal values"),
    *("a list of tuples by their second element", "the area of a triangle", "a string reversed"),
    *("the difference of two sets", "the position of an element in a sorted list"),
    *("the missing number in a range", "the longest word of a text", "all pairs that add up to k"),
    *("the transpose of a matrix", "the binary form of an integer", "nested lists as a flat one"),
    *("whether brackets are balanced", "a temperature in another unit", "the lines of a file"),
)
_NAMES = ("solve", "process", "find_items", "compute", "check_values", "get_result", "transform")


def _write_function(random: Random) -> str:
    name, thing = random.choice(_NAMES), random.choice(_THINGS)
    wording = random.choice(
        (
            "Write a Python function {name} that {verb} {thing}.",
            "Write a function in Python which {verb} {thing}. Call it {name}.",
            "Please give me a short Python function that {verb} {thing}, and explain it.",
            "Implement {name}(values) in Python. It {verb} {thing}. Add a docstring.",
        )
    )
    return wording.format(name=name, verb=random.choice(_VERBS), thing=thing)


def _complete_function(random: Random) -> str:
    source = random.choice(_functions())
    lines = source.splitlines()
    head = lines[: max(2, len(lines) // 3)]
    return "Complete the following Python function:\n\n```python\n" + "\n".join(head) + "\n```"


def _explain_function(random: Random) -> str:
    ask = random.choice(("Explain what this code does.", "What does this function return?"))
    return f"{ask}\n\n```python\n{random.choice(_functions())}\n```"


# -- sums -------------------------------------------------------------------------------------

_PEOPLE = ("Anna", "Ben", "Carla", "David", "Elif", "Farid", "Grace", "Hugo", "Ines", "Jonas")
_GOODS = ("apples", "books", "tickets", "pencils", "cookies", "marbles", "flowers", "stickers")


def _word_problem(random: Random) -> str:
    one, other = random.sample(_PEOPLE, 2)
    goods = random.choice(_GOODS)
    a, b, c = random.randint(3, 60), random.randint(2, 25), random.randint(2, 9)
    text = random.choice(
        (
            f"{one} has {a} {goods} and buys {b} more every day for {c} days. Then {one} gives a "
            f"third of them to {other}. How many {goods} are left?",
            f"A box of {goods} costs ${c}. {one} buys {b} boxes and pays with ${a + b * c}. How "
            "much change is there?",
            f"{one} reads {b} pages a day and {other} reads {c} times as many. How many pages do "
            f"they read together in {a} days?",
            f"There are {a} {goods} on each of {c} shelves. {b} of them are sold, and the rest is "
            f"shared by {one} and {other} equally. How many does each get?",
            f"{one} works {c} hours a day for ${b} an hour. How many days does it take to earn "
            f"${a * b}?",
        )
    )
    return text + random.choice((" Think step by step.", " Show your work.", ""))


# -- edits and extracts -----------------------------------------------------------------------


def _edit_code(random: Random) -> str:
    ask = random.choice(
        (
            "Add a comment to each statement of this function.",
            "Rename the first parameter of this function and change nothing else.",
            "Remove the docstring from this function and return the rest as it is.",
            "Add type hints to this function.",
            "Rewrite this function with another name, everything else the same.",
            "Add a print at the beginning of this function.",
        )
    )
    return f"{ask}\n\n```python\n{random.choice(_functions())}\n```"


def _edit_text(random: Random) -> str:
    text = _word_problem(random)
    old = next(name for name in _PEOPLE if name in text)
    new = random.choice([name for name in _PEOPLE if name not in text])
    ask = random.choice(
        (
            f"Replace {old} by {new} in this text and return all of it.",
            "Write every number of this text as a word and change nothing else.",
            "Return this text with every sentence on a line of its own.",
            "Correct the spelling of this text if anything is wrong, and return it whole.",
        )
    )
    return f"{ask}\n\n{text}"


def _extract_code(random: Random) -> str:
    sources = random.sample(_functions(), random.randint(2, 3))
    ask = random.choice(
        (
            "List the name and the docstring of every function in this module.",
            "List the signatures of all functions in this code.",
            "Reproduce this module without its comments and docstrings.",
            "Make a table with the name of each function and what it returns.",
        )
    )
    code = "\n\n\n".join(sources)
    return f"{ask}\n\n```python\n{code}\n```"


def _extract_text(random: Random) -> str:
    problems = [_word_problem(random) for _ in range(random.randint(2, 4))]
    ask = random.choice(
        (
            "Repeat each problem and list the numbers that occur in it.",
            "Quote the question of each of these problems.",
            "List all names that occur in this text.",
            "Summarize each of these problems in one sentence.",
        )
    )
    numbered = "\n".join(f"{place}. {text}" for place, text in enumerate(problems, 1))
    return f"{ask}\n\n{numbered}"


_TASKS: tuple[Callable[[Random], str], ...] = (
    chat_question,
    _write_function,
    _word_problem,
    chat_question,
    _edit_code,
    _extract_text,
    chat_question,
    _complete_function,
    _word_problem,
    chat_question,
    _edit_text,
    _extract_code,
    chat_question,
    _write_function,
    _explain_function,
)


@cache
def _functions() -> tuple[str, ...]:
    """Return functions of Python's library, each with its own indentation taken away."""
    library = Path(sysconfig.get_paths()["stdlib"])
    found: list[str] = []
    for module in _MODULES:
        path = library / f"{module}.py"
        if path.is_file():
            found += _functions_of(path.read_text(encoding="utf-8"))
    return tuple(found)


def _functions_of(source: str) -> Iterator[str]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            text = ast.get_source_segment(source, node) or ""
            if _SHORTEST <= len(text) <= _LONGEST:
                yield text
