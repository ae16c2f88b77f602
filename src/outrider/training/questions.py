"""What people ask in a chat, made up from topics and ways of asking."""

from __future__ import annotations

from random import Random

_THINGS = (
    *("photosynthesis", "gravity", "the water cycle", "black holes", "evolution", "vaccines"),
    *("the stock market", "inflation", "compound interest", "supply and demand", "democracy"),
    *("the French Revolution", "the Roman Empire", "the Silk Road", "the Industrial Revolution"),
    *("machine learning", "the internet", "blockchain", "encryption", "cloud computing"),
    *("electric cars", "solar panels", "nuclear energy", "climate change", "recycling"),
    *("the human heart", "the immune system", "sleep", "stress", "memory", "the placebo effect"),
    *("yoga", "meditation", "running", "swimming", "chess", "the piano", "jazz", "opera"),
    *("impressionism", "the Renaissance", "haiku", "poetry", "photography", "film making"),
    *("bread baking", "coffee", "green tea", "olive oil", "fermentation", "a vegetarian diet"),
    *("volcanoes", "earthquakes", "coral reefs", "rain forests", "deserts", "bees", "whales"),
    *("dolphins", "penguins", "owls", "dogs", "cats", "horses", "mushrooms", "the moon"),
    *("Mars", "the solar system", "rockets", "airplanes", "bridges", "skyscrapers", "trains"),
    *("public transport", "remote work", "time management", "small talk", "public speaking"),
    *("negotiation", "leadership", "teamwork", "marketing", "a business plan", "insurance"),
    *("a mortgage", "a budget", "taxes", "retirement savings", "human rights", "free speech"),
    *("the United Nations", "the scientific method", "statistics", "probability", "algebra"),
    *("geometry", "prime numbers", "the number zero", "infinity", "logic", "philosophy"),
    *("stoicism", "Buddhism", "mythology", "the pyramids", "the Great Wall of China"),
    *("Japan", "Brazil", "Kenya", "Norway", "Australia", "India", "Mexico", "Egypt", "Italy"),
)
_PLACES = (
    *("Paris", "Tokyo", "New York", "Rome", "Cairo", "Sydney", "Istanbul", "Lisbon", "Bangkok"),
    *("Cape Town", "Buenos Aires", "Vienna", "Seoul", "Marrakesh", "Iceland", "the Alps"),
    *("Hawaii", "Scotland", "Vietnam", "Peru"),
)
_AIMS = (
    *("learn a new language", "save money", "sleep better", "eat healthier", "lose weight"),
    *("write a good resume", "prepare for a job interview", "run a marathon", "stop smoking"),
    *("start a small business", "grow tomatoes", "train a puppy", "clean a kitchen"),
    *("study for an exam", "give a speech", "make new friends", "reduce stress", "read more"),
    *("write a novel", "take better photos", "cook rice", "bake a chocolate cake", "fix a bike"),
    *("remove a stain", "plan a wedding", "choose a laptop", "learn to code", "draw a face"),
    *("organize my desk", "be more productive", "deal with a difficult boss", "sell my car"),
    *("find a new apartment", "build a birdhouse", "set up a home network", "learn the guitar"),
    *("improve my memory", "get over a breakup", "ask for a raise", "raise chickens"),
)
_HEROES = (
    *("a dragon who is afraid of fire", "a robot that learns to paint", "a lost astronaut"),
    *("two brothers and a secret door", "an old lighthouse keeper", "a cat that can talk"),
    *("a girl who finds a map", "a detective in a small town", "a wizard without magic"),
    *("a boy and his grandfather's watch", "a fox and a crow", "the last tree of a city"),
    *("a chef who cannot taste", "a ghost in a library", "a time traveller", "a shy musician"),
)
_JOBS = (
    *("teacher", "nurse", "software engineer", "chef", "journalist", "lawyer", "architect"),
    *("gardener", "pilot", "photographer", "data scientist", "electrician", "librarian"),
)
_LISTS = (
    *("countries in Africa", "fruits that are rich in vitamin C", "famous painters"),
    *("books everyone should read", "movies about space", "kinds of pasta", "board games"),
    *("inventions that changed the world", "animals that live in the sea", "healthy breakfasts"),
    *("questions to ask on a first date", "names for a coffee shop", "gifts for a friend"),
    *("programming languages and what they are used for", "team building activities"),
    *("causes of the First World War", "ways to use leftover bread", "uses of a brick"),
    *("capitals of Europe", "mountains and their heights", "rivers of Asia", "ball games"),
    *("musical instruments with strings", "exercises without equipment", "ideas for a party"),
    *("languages spoken in Europe", "good habits", "science fiction novels", "common birds"),
)
_THEMES = (
    *("autumn", "the sea", "friendship", "a rainy day", "time", "winter", "my grandmother"),
    *("a city at night", "hope", "the stars", "a cup of tea", "summer holidays", "a garden"),
)
_LETTERS = (
    *("thanking a colleague for help", "asking a customer to pay an invoice"),
    *("inviting friends to a birthday", "declining a job offer", "asking for a day off"),
    *("complaining about a broken product", "announcing a new office", "applying for a job"),
    *("apologizing for a late delivery", "welcoming a new member of the team"),
    *("asking a professor for a recommendation", "reminding tenants of a meeting"),
)
_FRAMES = (
    *("What is {thing}?", "What are the benefits of {thing}?", "How does {thing} work?"),
    *("Explain {thing} in simple terms.", "Explain {thing} to a ten year old."),
    *("Write a short paragraph about {thing}.", "Why is {thing} important?"),
    *("What are some facts about {thing}?", "What is the history of {thing}?"),
    *("Give me five interesting facts about {thing}.", "Write an essay about {thing}."),
    *("What are the pros and cons of {thing}?", "Tell me about {thing}."),
    *("What is the difference between {thing} and {other}?", "Compare {thing} and {other}."),
    *(
        "Is {thing} more important than {other}? Give reasons.",
        "Summarize what you know of {thing}.",
    ),
    *("Write a dialogue between a teacher and a student about {thing}.",),
    *("I am new to {thing}. Where should I start?", "Write a quiz with answers about {thing}."),
    *("How do I {aim}?", "Give me some tips to {aim}.", "What is the best way to {aim}?"),
    *("I want to {aim}. What should I do first?", "Write step by step instructions to {aim}."),
    *("My friend wants to {aim}, but has little time. What would you say?",),
    *("Write a short story about {hero}.", "Write the beginning of a novel about {hero}."),
    *("Write a bedtime story about {hero}.", "Describe {hero} in three sentences."),
    *("Name ten {list}.", "List some {list}.", "Can you give me a list of {list}?"),
    *("Write a poem about {theme}.", "Write a haiku about {theme}.", "Write a song about {theme}."),
    *("Write an email {letter}.", "Write a short, friendly message {letter}."),
    *("Plan a three day trip to {place}.", "What should I see in {place}?"),
    *("What is the weather like in {place} in spring?", "What do people eat in {place}?"),
    *(
        "What does a {job} do?",
        "How can I become a {job}?",
        "Act as a {job} and introduce yourself.",
    ),
    *("Describe the typical day of a {job}.", "What questions are asked when a {job} is hired?"),
)


def chat_question(random: Random) -> str:
    """Return something a person might ask."""
    thing, other = random.sample(_THINGS, 2)
    return random.choice(_FRAMES).format(
        thing=thing,
        other=other,
        aim=random.choice(_AIMS),
        hero=random.choice(_HEROES),
        job=random.choice(_JOBS),
        list=random.choice(_LISTS),
        theme=random.choice(_THEMES),
        letter=random.choice(_LETTERS),
        place=random.choice(_PLACES),
    )
