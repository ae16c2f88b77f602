"""The prompts that come with outrider, written for it: six tasks, from free text to copying."""

from __future__ import annotations

_CHAT = (
    "What should I pack for a week of walking in the hills in October?",
    "Explain to a twelve-year-old why the sea is salty but rivers are not.",
    "Write a short letter to a neighbour whose tree drops its leaves into my garden.",
)

_CODE = (
    "Write a Python function `longest_run(values)` that returns the length of the longest run of "
    "equal values that stand next to each other, 0 for an empty list. Add a docstring and two "
    "examples of calls.",
    """\
Complete this Python class. Every method needs a docstring:

class Shelf:
    \"\"\"A shelf that holds boxes up to a total weight.\"\"\"

    def __init__(self, most_weight):
        self.most_weight = most_weight
        self.boxes = []

    def add(self, name, weight):
        # refuse a box that would make the shelf too heavy

    def remove(self, name):

    def heaviest(self):
""",
    "Write a shell script that makes a dated copy of a folder given as its first argument, keeps "
    "the five newest copies and deletes older ones. Explain each step in a comment.",
)

_MATH = (
    "A baker fills 14 trays with 24 rolls each and sells 251 rolls. How many are left? "
    "Show each step.",
    "A tank holds 360 litres. One pump fills it in 6 hours, another in 4. How long do both "
    "take together? Show each step.",
    "Write out the multiplication table of 7 from 1 to 12, one line each.",
)

_SUMMARIZE = (
    """\
Summarize this report in three sentences:

The footbridge over the Aller was closed on Monday after a routine inspection found cracks in two
of its six steel hangers. The town's engineer said that the bridge had been safe until then, but
that the cracks would have grown with the first frost. Both hangers were made in 1987 and painted
for the last time in 2009; water had crept under the paint where the hangers meet the deck. New
ones have been ordered from a works in the next valley and are to be fitted within five weeks. Until
then, walkers must use the road bridge, 800 metres upstream, where the pavement is narrow. The
school has asked parents not to let children cycle there. The council will decide next week whether
to lend the school a bus. The repair will cost about 64,000 euros, of which the state pays half.
""",
    """\
Write a summary of the following minutes as a list of what was decided and by whom it will be done:

Present were Ines, Paolo, Wanda and Karl. Ines reported that the reading room was full on eleven of
the last twelve Saturdays. Wanda suggested opening on Sundays as well, from ten to two. Karl doubted
that there were enough volunteers. It was agreed to try Sundays in March and to count visitors every
hour; Wanda will draw up the rota, and Paolo will put a notice in the window. Paolo said that the
copier had failed three times since New Year. A new one would cost 900 euros, a repair 220. It was
agreed to have it repaired once more and to save for a new one; Karl will call the workshop. Ines
will ask the choir whether it can sing at the summer feast. The next meeting is on 4 February.
""",
    """\
What is the main point of this text? Answer in two sentences:

Gardeners often water a little every evening. It feels kind, but it teaches roots to stay near the
surface, where the soil dries out first. A plant that is watered deeply once a week sends its roots
down after the water, and in a dry spell it still finds some. Clay holds water for longer than sand,
so that a bed of clay may wait ten days and a bed of sand only four. Seedlings are the exception:
their roots have had no time to grow, and they do need a little every day. Mulch helps any bed. A
layer of cut grass as thick as a thumb halves what the sun takes from the soil, and feeds it too.
""",
)

_EDIT = (
    """\
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
""",
    """\
Correct the spelling in this note and repeat the rest word for word:

The ferry to the iland leaves at nine. Tickets are sold at the harbuor, in the white
house with the blue door. Dogs travel free, bicycles cost two euros. The last boat back
leaves at six in the evning.
""",
    """\
Add type hints to this class. Keep everything else as it is:

class Basket:
    def __init__(self, owner):
        self.owner = owner
        self.prices = {}

    def add(self, name, price):
        self.prices[name] = price

    def total(self):
        return sum(self.prices.values())
""",
)

_RETRIEVAL = (
    """\
Answer from the passages alone, and quote the sentence that the answer is taken from.

Passage 1: The lighthouse of Skarn was built in 1861 from granite that was cut on the island itself.
Its lamp burned rape oil until 1904, then gas, and has been electric since 1958.

Passage 2: The keeper's house stands a little below the lighthouse. Three families lived in it at a
time, and a teacher came over by boat twice a week. The last keeper left in 1979.

Passage 3: The bird station of Skarn was opened in 1983 in the keeper's house. About 14,000 birds
are ringed there every autumn, most of them goldcrests and robins.

Question: Since when has there been a bird station, and in which building is it?
""",
    """\
List every departure with its platform, one a line, exactly as written:

The 08:14 to Lindau leaves from platform 3. The 08:31 to Bregenz leaves from platform 1.
The 08:52 to Memmingen leaves from platform 7. The 09:05 to Lindau leaves from platform 3.
""",
    """\
Use the manual below to answer the question at its end. Give the number of the section as well.

4.1 Filling. Fill the tank with cold water up to the upper mark. Never use water from a softener.
4.2 Starting. Press the green button for two seconds. The light blinks while the water heats up, and
shines when it is hot, after about four minutes.
4.3 Cleaning. Once a month, fill the tank with water and two spoons of citric acid, press both
buttons together, and let the machine run until it stops by itself. Rinse twice.
4.4 Faults. If the light blinks red, the tank is empty. If it shines red, the machine is too hot:
pull the plug and wait for half an hour.

Question: The light of my machine shines red. What should I do, and how long will it take?
""",
)

_TASKS = {
    "chat": _CHAT,
    "code": _CODE,
    "math": _MATH,
    "summarize": _SUMMARIZE,
    "edit": _EDIT,
    "retrieval": _RETRIEVAL,
}

PROMPTS: tuple[tuple[str, str], ...] = tuple(
    (task, prompt)
    for of_each_task in zip(*_TASKS.values(), strict=True)
    for task, prompt in zip(_TASKS, of_each_task, strict=True)
)
"""(task, prompt), the tasks in turn, so that the first 6k prompts hold k of each."""
