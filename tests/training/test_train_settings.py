"""Every choice of a training run has a range, and what is outside it is one error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outrider.errors import OptionError
from outrider.training.settings import TrainOptions

BAD: dict[str, tuple[Any, ...]] = {
    "learning_rate": (0, -1.0, float("nan"), float("inf"), "1", True, None),
    "clip": (0, -1, float("inf"), None),
    "max_hours": (0, -2.0, float("nan")),
    "warm_up": (-0.1, 1.1, float("nan"), None),
    "floor": (-0.1, 1.1),
    "weight_decay": (-0.1, 2),
    "accumulate": (0, 1.0, None, True),
    "epochs": (0, 1.5),
    "max_steps": (0, 1e3),
    "save_every": (0, None),
    "evaluate_every": (0, None),
    "seed": (-1, 0.5, None),
    "schedule": ("linear", None),
    "autocast": ("bfloat16", 1),
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, all_ in BAD.items() for v in all_])
def test_a_value_out_of_its_range_names_the_option_and_the_range(name: str, value: object) -> None:
    given: dict[str, Any] = {name: value}
    with pytest.raises(OptionError, match=rf"^{name} is .*; it must be "):
        TrainOptions(**given)


def test_only_what_the_weights_do_not_depend_on_may_change_between_parts_of_a_run() -> None:
    options = TrainOptions()
    longer = replace(options, max_hours=2.0, save_every=5, evaluate_every=5)
    assert options.course() == longer.course()
    changes: dict[str, Any] = {
        "learning_rate": 1.0,
        "schedule": "constant",
        "warm_up": 0.5,
        "floor": 0.5,
        "weight_decay": 0.5,
        "clip": 0.5,
        "accumulate": 2,
        "epochs": 2,
        "max_steps": 2,
        "autocast": True,
        "seed": 1,
    }
    for name, value in changes.items():
        assert replace(options, **{name: value}).course() != options.course()


def test_a_share_of_the_steps_warms_up() -> None:
    schedule = TrainOptions(learning_rate=1.0, warm_up=0.1).plan(50)
    assert schedule.rate(5) == 1.0
    assert schedule.rate(4) < 1.0
