"""The prompts that come with outrider: short ones, from free text to copying."""

from __future__ import annotations

_EDIT_1 = """\
Rename the variable `n` to `count` in this function and change nothing else:

def average(values):
    total = 0.0
    n = 0
    for value in values:
        total += value
        n += 1
    if n == 0:
        raise ValueError("no values")
    return total / n
"""

_EDIT_2 = """\
Add type hints to this class. Keep everything else as it is:

class Basket:
    def __init__(self, owner):
        self.owner = owner
        self.prices = {}

    def add(self, name, price):
        self.prices[name] = price

    def total(self):
        return sum(self.prices.values())
"""

_EDIT_3 = """\
Correct the spelling in this note and repeat the rest word for word:

The ferry to the iland leaves at nine. Tickets are sold at the harbuor, in the white
house with the blue door. Dogs travel free, bicycles cost two euros. The last boat back
leaves at six in the evning.
"""

_EXTRACT_1 = """\
List every departure with its platform, one a line, exactly as written:

The 08:14 to Lindau leaves from platform 3. The 08:31 to Bregenz leaves from platform 1.
The 08:52 to Memmingen leaves from platform 7. The 09:05 to Lindau leaves from platform 3.
"""

_EXTRACT_2 = """\
Give the names of all functions below, each with its docstring:

def area(width, height):
    \"\"\"Return the area of a rectangle.\"\"\"
    return width * height

def border(width, height):
    \"\"\"Return the length of a rectangle's border.\"\"\"
    return 2 * (width + height)

def is_square(width, height):
    \"\"\"Whether a rectangle is a square.\"\"\"
    return width == height
"""

_EXTRACT_3 = """\
Turn this order into JSON with the keys item, amount and price:

Three pairs of wool socks at 12.50 each, one rain jacket at 89.00, and two water bottles
at 17.25 each.
"""

_CHAT_1 = "What should I pack for a week of walking in the hills in October?"
_CHAT_2 = "Explain to a twelve-year-old why the sea is salty but rivers are not."
_CHAT_3 = "Write a short letter to a neighbour whose tree drops its leaves into my garden."

_MATHS_1 = (
    "A baker fills 14 trays with 24 rolls each and sells 251 rolls. How many are left? "
    "Show each step."
)
_MATHS_2 = (
    "A tank holds 360 litres. One pump fills it in 6 hours, another in 4. How long do both "
    "take together? Show each step."
)
_MATHS_3 = "Write out the multiplication table of 7 from 1 to 12, one line each."

PROMPTS: tuple[tuple[str, str], ...] = (
    ("edit", _EDIT_1),
    ("extract", _EXTRACT_1),
    ("chat", _CHAT_1),
    ("maths", _MATHS_1),
    ("edit", _EDIT_2),
    ("extract", _EXTRACT_2),
    ("chat", _CHAT_2),
    ("maths", _MATHS_2),
    ("edit", _EDIT_3),
    ("extract", _EXTRACT_3),
    ("chat", _CHAT_3),
    ("maths", _MATHS_3),
)
"""(task, prompt), the tasks in turn, so that the first 4k prompts hold k of each."""
