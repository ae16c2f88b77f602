"""Criteria and streamers are told of every token in turn, as `generate` tells them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
    TextStreamer,
)
from transformers.generation.stopping_criteria import MaxLengthCriteria, StopStringCriteria
from transformers.generation.streamers import BaseStreamer

from support.files import word_tokenizer
from support.generating import (
    EVERYTHING,
    PAD,
    assert_same_output,
    assert_same_steps,
    both,
    knowing,
    prompts,
)
from support.tiny import shared_model


class Watching(StoppingCriteria):
    """Ends a row once its ids add up to a multiple; remembers what it was asked."""

    def __init__(self, multiple: int) -> None:
        self.multiple = multiple
        self.ids: list[list[list[int]]] = []
        self.scores: list[tuple[Tensor, ...] | None] = []

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        self.ids.append(input_ids.tolist())
        self.scores.append(scores)
        return input_ids.sum(-1) % self.multiple == 0


class AllTogether(StoppingCriteria):
    """Ends every row once two of them say the same token."""

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        last = input_ids[:, -1].tolist()
        return torch.full((len(last),), len(set(last)) < len(last))


class Ninth(StoppingCriteria):
    """Ends all rows at its ninth call: it keeps state."""

    calls = 0

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return torch.full((len(input_ids),), self.calls >= 9)


@pytest.mark.parametrize("eos", [None, 60])
@pytest.mark.parametrize("lengths", [(6,), (4, 9, 6)])
@pytest.mark.parametrize("output", [{}, EVERYTHING])
def test_criteria_are_asked_of_all_rows_at_every_token_with_the_scores_so_far(
    lengths: tuple[int, ...], eos: int | None, output: dict[str, Any]
) -> None:
    """STOP-5, STOP-7: without an end-of-text id rows that have ended are written on, with one they
    are padded.
    """
    asked: list[Watching] = []

    def make() -> dict[str, Any]:
        asked.append(Watching(11))
        return {"stopping_criteria": StoppingCriteriaList([asked[-1]])}

    expected, found = both(
        shared_model(), prompts(*lengths), knowing(), make, eos_token_id=eos, **output
    )
    assert_same_output(found, expected)
    theirs, ours = asked
    assert ours.ids == theirs.ids
    assert len(ours.ids) > 1
    for mine, other in zip(ours.scores, theirs.scores, strict=True):
        assert_same_steps(mine, other)


class BansByCall(LogitsProcessor):
    """Bans at each third call what the scores favour: it keeps state."""

    def __init__(self) -> None:
        self.prefixes: list[list[int]] = []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self.prefixes.append(input_ids[0].tolist())
        if len(self.prefixes) % 3 == 0:
            return scores.scatter(1, scores.argmax(-1, keepdim=True), -torch.inf)
        return scores


def test_a_processor_is_called_once_for_each_token_of_a_lone_row_and_in_order() -> None:
    """PROC-7: of what was drafted and rejected it hears nothing."""
    made: list[BansByCall] = []

    def make() -> dict[str, Any]:
        made.append(BansByCall())
        return {"logits_processor": LogitsProcessorList([made[-1]])}

    expected, found = both(shared_model(), prompts(6), knowing(), make, max_new_tokens=30)
    assert_same_output(found, expected)
    theirs, ours = made
    assert ours.prefixes == theirs.prefixes
    assert len(ours.prefixes) == 30


@pytest.mark.parametrize("kind", [AllTogether, Ninth, lambda: MaxLengthCriteria(23)])
def test_criteria_may_look_across_rows_and_keep_state(kind: Any) -> None:
    def make() -> dict[str, Any]:
        return {"stopping_criteria": StoppingCriteriaList([kind()])}

    expected, found = both(shared_model(), prompts(4, 9, 6), knowing(), make, eos_token_id=60)
    assert expected.shape[1] < 18 + 16
    assert_same_output(found, expected)


def test_a_stop_string_ends_a_text_where_it_is_complete() -> None:
    inputs = prompts(6)
    plain, _ = both(shared_model(), inputs, knowing())
    tokenizer = word_tokenizer()
    tokenizer.add_tokens(["abcdef"])  # which the criterion has the tokenizer read
    stop: Any = tokenizer.decode([int(plain[0, 12 + 6])])

    def make() -> dict[str, Any]:
        return {"stopping_criteria": StoppingCriteriaList([StopStringCriteria(tokenizer, [stop])])}

    expected, found = both(shared_model(), inputs, knowing(), make)
    assert expected.shape[1] <= 12 + 7
    assert_same_output(found, expected)


def test_a_time_limit_of_nothing_leaves_one_token() -> None:
    expected, found = both(shared_model(), prompts(4, 6), knowing(), max_time=1e-9)
    assert found.shape == expected.shape == (2, 13)


class Recorder(BaseStreamer):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.puts: list[Any] = []

    def put(self, value: Any) -> None:
        self.puts.append((tuple(value.shape), value.device.type, value.tolist()))

    def end(self) -> None:
        self.puts.append("end")


@pytest.mark.parametrize("lengths", [(6,), (4, 9, 6)])
def test_a_streamer_gets_the_prompt_then_each_token_then_the_end(lengths: tuple[int, ...]) -> None:
    streamers: list[Recorder] = []

    def make() -> dict[str, Any]:
        streamers.append(Recorder())
        return {"streamer": streamers[-1]}

    both(shared_model(), prompts(*lengths), knowing(), make, eos_token_id=60)
    theirs, ours = streamers
    assert ours.puts == theirs.puts
    assert len(ours.puts) > 4
    assert ours.puts[-1] == "end"


def test_a_text_streamer_prints_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []

    def make() -> dict[str, Any]:
        shown.append(capsys.readouterr().out)
        return {"streamer": TextStreamer(word_tokenizer(), skip_prompt=True)}

    both(shared_model(), prompts(6), knowing(), make)
    shown.append(capsys.readouterr().out)
    assert shown[1] == shown[2]
    assert shown[1].startswith("w")


def test_what_a_streamer_raises_leaves_no_work_behind() -> None:
    class Broken(Recorder):
        def put(self, value: Any) -> None:
            super().put(value)
            if len(self.puts) == 5:
                raise KeyError("full")

    model, custom = shared_model(), knowing()
    generate: Any = model.generate
    with pytest.raises(KeyError, match="full"):
        generate(**prompts(6), max_new_tokens=9, custom_generate=custom, streamer=Broken())
    expected, found = both(model, prompts(6), custom)
    assert_same_output(found, expected)
    assert PAD not in found[0, 12:].tolist()


def test_what_a_processor_raises_leaves_the_model_as_it_was() -> None:
    """CACHE-7."""

    class FailsThird(BansByCall):
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            if len(self.prefixes) == 2:
                raise KeyError("third")
            return super().__call__(input_ids, scores)

    model, custom = shared_model(), knowing()
    generate: Any = model.generate
    hooks = [len(module._forward_hooks) for module in model.modules()]
    failing = LogitsProcessorList([FailsThird()])
    with pytest.raises(KeyError, match="third"):
        generate(**prompts(6), max_new_tokens=9, custom_generate=custom, logits_processor=failing)
    assert [len(module._forward_hooks) for module in model.modules()] == hooks
    expected, found = both(model, prompts(6), custom)
    assert_same_output(found, expected)
