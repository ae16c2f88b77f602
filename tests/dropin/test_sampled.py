"""Sampled text: outrider's own for its seed, with the law of `generate`."""

from __future__ import annotations

import itertools
import math
from typing import Any, get_args

import pytest
import torch

import outrider
from outrider.dropin.custom_generate import CustomGenerate
from outrider.types import Rule
from support.generating import (
    EVERYTHING,
    assert_same_output,
    assert_same_steps,
    knowing,
    prompts,
)
from support.runs import draft_model
from support.tiny import shared_model, tiny_model

SAMPLED: dict[str, Any] = {
    "do_sample": True,
    "temperature": 0.8,
    "top_k": 30,
    "top_p": 0.95,
    "repetition_penalty": 1.2,
    "max_new_tokens": 16,
}


def sample(custom: CustomGenerate, *lengths: int, **options: Any) -> Any:
    generate: Any = shared_model().generate
    return generate(**prompts(*lengths), custom_generate=custom, **(SAMPLED | options))


def seeded(drafter: Any, seed: int | None = 5) -> CustomGenerate:
    return outrider.custom_generate(drafter=drafter, max_draft=5, seed=seed)


@pytest.mark.parametrize("drafter", ["ngram", "suffix", "model"])
def test_drafts_do_not_change_what_a_seed_says(drafter: str) -> None:
    drafts = draft_model("noisy") if drafter == "model" else drafter
    plain = sample(seeded("none"), 4, 9, **EVERYTHING)
    assert_same_output(sample(seeded(drafts), 4, 9, **EVERYTHING), plain)


def test_a_row_says_what_a_decoder_says_of_the_same_seed_and_options() -> None:
    rows = sample(seeded("ngram"), 4, 9, 6)
    inputs = prompts(4, 9, 6)
    decoder = outrider.load(shared_model())
    named = {name: value for name, value in SAMPLED.items() if name != "do_sample"}
    for row in range(3):
        prompt = inputs["input_ids"][row][inputs["attention_mask"][row].bool()].tolist()
        alone = decoder.generate(prompt, seed=5 + row, **named)
        assert list(alone.token_ids) == rows[row, 18:].tolist()


def test_the_seed_of_torch_decides_where_none_is_named() -> None:
    found = []
    for torch_seed in (1, 1, 2):
        torch.manual_seed(torch_seed)
        found.append(sample(knowing(), 4, 6).tolist())
    assert found[0] == found[1] != found[2]


def test_greedy_decoding_leaves_the_generator_of_torch_alone() -> None:
    state = torch.get_rng_state()
    sample(knowing(), 4, do_sample=False, temperature=None, top_k=None, top_p=None)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("rule", get_args(Rule))
def test_logits_are_those_of_the_text_whatever_the_rule_looked_at(rule: Rule) -> None:
    """Rules that reject ask for rows of drafts that they drop."""
    custom = outrider.custom_generate(
        drafter=draft_model("noisy"), rule=rule, max_draft=6, max_batch=4, seed=3
    )
    found = sample(custom, 7, 7, 7, **EVERYTHING)
    with torch.no_grad():
        expected = shared_model()(input_ids=found.sequences).logits[:, 13:-1].float()
    assert_same_steps(found.logits, tuple(expected.unbind(1)))


def test_return_sequences_are_rows_of_their_own() -> None:
    rows = sample(knowing(), 4, 6, num_return_sequences=3)
    assert rows.shape == (6, 12 + 16)
    assert rows[:3, :12].tolist() == prompts(4, 6)["input_ids"][:1].repeat(3, 1).tolist()
    assert len({tuple(row) for row in rows.tolist()}) == 6


VOCABULARY, LENGTH, COUNT = 3, 3, 500


def chi_square_excess(options: dict[str, Any], told: dict[str, Any]) -> float:
    """Return how far texts sampled with `told` are from the law of `options`, in deviations.

    The law of all texts of three tokens comes from the scores of `generate`'s own loop.
    """
    generate: Any = tiny_model(vocab_size=VOCABULARY).generate
    prompt = torch.tensor([[1, 2, 1, 2, 1, 2]])
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(LENGTH):
        grown: dict[tuple[int, ...], float] = {}
        for text, chance in law.items():
            ids = torch.cat((prompt, torch.tensor([text], dtype=torch.long)), dim=1)
            step = generate(ids, do_sample=True, max_new_tokens=1, **EVERYTHING, **options)
            probs = step.scores[0][0].double().softmax(-1).tolist()
            grown |= {(*text, token): chance * probs[token] for token in range(VOCABULARY)}
        law = grown
    torch.manual_seed(7)
    rows = generate(
        prompt,
        do_sample=True,
        max_new_tokens=LENGTH,
        num_return_sequences=COUNT,
        custom_generate=outrider.custom_generate(drafter="ngram", max_draft=2, max_batch=20),
        **told,
    )
    counts: dict[tuple[int, ...], int] = dict.fromkeys(
        itertools.product(range(VOCABULARY), repeat=LENGTH), 0
    )
    for row in rows[:, prompt.shape[1] :].tolist():
        counts[tuple(row)] += 1
    assert all(law[text] > 0 or not seen for text, seen in counts.items())
    common = [text for text in counts if law[text] * COUNT >= 5]
    excess = sum((counts[t] - COUNT * law[t]) ** 2 / (COUNT * law[t]) for t in common)
    freedom = len(common) - 1
    assert freedom >= 8
    return (excess - freedom) / math.sqrt(2 * freedom)


OPTIONS = {"temperature": 1.5, "min_p": 0.02, "repetition_penalty": 1.1}


def test_sampled_text_has_the_law_of_generate() -> None:
    """A sound engine fails for fewer than 1 in 1,000 choices of the seed, and it is fixed."""
    assert abs(chi_square_excess(OPTIONS, OPTIONS)) < 4


def test_the_check_of_the_law_notices_another_temperature() -> None:
    assert chi_square_excess(OPTIONS, OPTIONS | {"temperature": 0.3}) > 10
