"""Drafting as far as it pays, on machines whose costs are known: no clock is read."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from outrider.engine.costs import PassCosts
from outrider.engine.ledger import Ledger
from support.machines import PLAIN_S, TEXT, Build, Machine, drafter, flat, steep
from support.runs import make_request
from support.simulated import PassTime


def seconds(builds: Sequence[Build], pass_time: PassTime, tokens: int, requests: int = 1) -> float:
    return Machine.of(builds, pass_time).run(tokens, requests)


MACHINES = pytest.mark.parametrize("pass_time", [flat, steep])
WRONG = pytest.mark.parametrize("build", [drafter(0.0), drafter(0.0, 0.1), drafter(0.1, 0.1)])


@MACHINES
@WRONG
def test_a_drafter_that_is_always_wrong_costs_less_than_a_fiftieth(
    build: Build, pass_time: PassTime
) -> None:
    plain = seconds([], pass_time, 128)
    assert seconds([build], pass_time, 128) < plain / 0.98
    assert seconds([build], pass_time, 1500) < seconds([], pass_time, 1500) / 0.99


@MACHINES
@pytest.mark.parametrize("rate", [0.0, 0.95])
def test_a_slow_drafter_is_tried_once_and_briefly_and_then_costs_next_to_nothing(
    rate: float, pass_time: PassTime
) -> None:
    """ADAPT-3: three passes of the target for a token."""
    machine = Machine.of([drafter(rate, 3.0)], pass_time)
    machine.run(128)
    assert sum(machine.target.drafted) == 1
    assert machine.run(128) < 1.01 * seconds([], pass_time, 128)
    assert machine.drafters[0].begun == 1


@MACHINES
@pytest.mark.parametrize(
    "build", [drafter(0.8), drafter(0.8, 0.1), drafter(0.95), drafter(0.6, 0.05)]
)
def test_a_good_drafter_reaches_nearly_the_speed_of_the_best_fixed_length(
    build: Build, pass_time: PassTime
) -> None:
    fixed = min(
        Machine.of([build], pass_time, max_draft=length).run(1200) for length in (2, 4, 6, 10, 15)
    )
    assert fixed < 0.95 * seconds([], pass_time, 1200)
    assert seconds([build], pass_time, 1200) < fixed / 0.94


def test_the_length_follows_what_drafting_costs() -> None:
    """ADAPT-3: c = .5 and alpha = .3 are not worth a draft, c = .05 and alpha = .8 are worth 8."""
    poor = Machine.of([drafter(0.3, 0.5)], flat)
    assert poor.run(400) < 1.02 * seconds([], flat, 400)
    assert sum(poor.target.drafted) < 20
    good = Machine.of([drafter(0.8, 0.05)], flat)
    good.run(1000)
    settled = sorted(good.target.drafted[len(good.target.drafted) // 2 :])
    assert 5 <= settled[len(settled) // 2] <= 11


@pytest.mark.parametrize("step", [0.0, 0.1])
def test_a_drafter_good_for_half_the_text_is_turned_off_and_on_again(step: float) -> None:
    """ADAPT-2"""
    half = 150
    machine = Machine.of([drafter(lambda place: 0.9 if place // half % 2 else 0.02, step)])
    lengths: list[tuple[int, int]] = []
    place = 0
    for result in machine.decode(1800):
        for token in result.tokens:
            lengths.append((place // half % 2, token.source != "accepted"))
            place += 1
    rounds = [sum(new for good, new in lengths if good == which) for which in (0, 1)]
    # Where drafts hold, most tokens come in rounds of several; where they do not, in plain ones.
    assert rounds[1] < 0.6 * rounds[0]
    assert machine.run(1800) < 0.87 * seconds([], steep, 1800)


def test_one_slow_pass_flips_nothing() -> None:
    passes = 0

    def interrupted(rows: int, attended: int) -> float:
        nonlocal passes
        passes += 1
        return steep(rows, attended) * (50 if passes == 60 else 1)

    machine = Machine.of([drafter(0.8)], interrupted)
    machine.run(600)
    before, after = machine.target.drafted[45:59], machine.target.drafted[60:74]
    assert sum(after) > 0.6 * sum(before)


def test_a_machine_that_slows_down_for_all_passes_alike_changes_nothing() -> None:
    passes = 0

    def loaded(rows: int, attended: int) -> float:
        nonlocal passes
        passes += 1
        return steep(rows, attended) * (3 if passes > 80 else 1)

    machine = Machine.of([drafter(0.8)], loaded)
    machine.run(1000)
    lengths = machine.target.drafted
    assert sum(lengths[100:180]) == pytest.approx(sum(lengths[20:80]) * 80 / 60, rel=0.4)


def test_the_cost_of_taking_back_rejected_rows_counts() -> None:
    """ADAPT-4: a plain pass takes 31 ms, one that verifies 225 ms, taking back 600 ms."""
    machine = Machine.of([drafter(0.75)], lambda rows, _: 0.031 if rows == 1 else 0.225)
    commit = machine.target.commit

    def slow_commit(sequence: int, path: Sequence[int]) -> None:
        if len(path) < machine.target.drafted[-1]:
            machine.clock.now += 0.6
        commit(sequence, path)

    machine.target.commit = slow_commit  # type: ignore[method-assign]
    machine.run(300)
    assert sum(length > 0 for length in machine.target.drafted) <= 4


def test_a_drafter_that_never_pays_is_not_begun_for_every_request() -> None:
    machine = Machine.of([drafter(0.0, 0.5)], max_batch=2)
    machine.run(64, requests=20)
    assert machine.drafters[0].begun <= 7


def test_a_drafter_begins_late_with_all_tokens_so_far() -> None:
    machine = Machine.of([drafter(1.0, 0.05)])
    (result,) = machine.decode(60)
    assert result.stats.acceptance_rate == 1
    # A plain pass to compare with, a try that says little of the cost, and one that does.
    assert machine.target.drafted[:4] == [0, 1, 1, 5]


@pytest.mark.parametrize("requests", [1, 4])
def test_of_several_drafters_each_text_gets_the_best(requests: int) -> None:
    """One copies well where the other guesses badly, and the other way round."""
    copier = drafter(lambda place: 0.95 if place // 200 % 2 else 0.1, name="copier")
    guesser = drafter(lambda place: 0.3 if place // 200 % 2 else 0.85, 0.08, name="guesser")
    alone = [Machine.of([build]).run(1600, requests) for build in (copier, guesser)]
    machine = Machine.of([guesser, copier])
    results = machine.decode(1600, requests)
    assert machine.clock.now < 0.9 * min(alone)
    names = {choice.drafter for choice in results[0].stats.explain()}
    assert names == {"plain", "copier", "guesser"}


def test_a_useless_drafter_beside_a_good_one_does_no_harm() -> None:
    alone = Machine.of([drafter(0.8, name="good")]).run(1000)
    beside = Machine.of([drafter(0.0, 0.3, name="bad"), drafter(0.8, name="good")])
    assert beside.run(1000) < 1.03 * alone


def test_a_full_batch_drafts_less_and_a_fuller_one_not_at_all() -> None:
    """A pass over many sequences has no rows to spare."""

    def crowded(rows: int, attended: int) -> float:
        return PLAIN_S * max(1.0, rows / 16)

    drafted = []
    for requests in (1, 4, 16):
        machine = Machine.of([drafter(0.6)], crowded, max_batch=requests)
        plain = Machine.of([], crowded, max_batch=requests).run(300, requests)
        assert machine.run(300, requests) < plain / 0.97
        rounds = machine.target.drafted[20:80]
        drafted.append(sum(rounds) / len(rounds) / requests)
    assert drafted[0] > drafted[1] > drafted[2]
    assert drafted[2] < 0.3


def test_a_flapping_number_of_sequences_is_no_reason_to_start_over() -> None:
    """ADAPT-1: requests come and go, and each number of them has its own costs."""
    machine = Machine.of([drafter(0.8)], max_batch=2)
    plain = Machine.of([], max_batch=2)
    for tokens in (40, 41) * 20:
        machine.run(tokens, 3)
        plain.run(tokens, 3)
    assert machine.clock.now < 0.6 * plain.clock.now


# -- what is carried over --------------------------------------------------------------------------


def test_an_engine_begins_with_what_another_has_learnt() -> None:
    first = Machine.of([drafter(0.8, 0.1)])
    first.run(600)
    profile = json.loads(json.dumps(first.engine.to_profile()))
    later = Machine.of([drafter(0.8, 0.1)], profile=profile)
    fresh = Machine.of([drafter(0.8, 0.1)])
    assert later.run(64) < fresh.run(64)
    assert later.target.drafted[1] > 2  # at once, and not for a first try


def test_a_drafter_known_to_be_slow_is_never_tried() -> None:
    first = Machine.of([drafter(0.9, 3.0)])
    first.run(64)
    later = Machine.of([drafter(0.9, 3.0)], profile=first.engine.to_profile())
    assert later.run(128) == pytest.approx(seconds([], steep, 128))
    assert later.drafters[0].begun == 0


def test_costs_may_be_shared_by_engines_of_one_target() -> None:
    costs = PassCosts()
    Machine.of([], costs=costs).run(50)
    assert costs.is_known()
    other = Machine.of([drafter(0.9)], costs=costs, profile=Machine.of([]).engine.to_profile())
    assert other.engine.costs is costs
    other.run(8)
    assert other.target.drafted[1] > 0  # no plain pass is needed for comparison


def test_drafters_of_one_name_are_told_apart() -> None:
    machine = Machine.of([drafter(0.5, 0.1), drafter(0.9, 0.1, seed=1)])
    machine.run(300)
    assert list(machine.engine.to_profile()["drafters"]) == ["simulated", "simulated 2"]


# -- why -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [drafter(0.8), drafter(0.8, 0.1)])
@pytest.mark.parametrize("tokens", [400])
def test_predictions_come_true_and_gains_are_those_over_plain(build: Build, tokens: int) -> None:
    machine = Machine.of([build])
    (result,) = machine.decode(tokens)
    stats = result.stats
    true = seconds([], steep, tokens) / machine.clock.now
    assert stats.realised_speedup == pytest.approx(true, rel=0.05)
    assert stats.predicted_speedup == pytest.approx(true, rel=0.12)
    choices = stats.explain()
    # The first round has nothing to be compared with.
    assert sum(choice.rounds for choice in choices) == stats.rounds - 1
    assert sum(choice.tokens for choice in choices) == stats.tokens - 1
    plain = stats.choices.get(("plain", 0))
    assert plain is None or plain.gain == pytest.approx(1, rel=0.02)
    assert [choice.rounds for choice in choices] == sorted(
        (choice.rounds for choice in choices), reverse=True
    )
    record = json.loads(json.dumps(stats.to_dict()))
    assert record["choices"][0]["rounds"] == choices[0].rounds
    assert record["realised_speedup"] == stats.realised_speedup


@pytest.mark.parametrize("max_draft", [0, 3])
def test_a_fixed_length_is_explained_too(max_draft: int) -> None:
    machine = Machine.of([drafter(0.8)], max_draft=max_draft)
    (result,) = machine.decode(200)
    name = "plain" if max_draft == 0 else "simulated"
    choice = result.stats.explain()[0]
    assert (choice.drafter, choice.drafted) == (name, max_draft)
    assert machine.drafters[0].begun == (max_draft > 0)
    assert set(machine.target.drafted[:-3]) == {max_draft}


def test_with_a_fixed_length_the_first_drafter_that_has_something_is_taken() -> None:
    shy = drafter(0.9, name="shy")
    machine = Machine.of([shy, drafter(0.9, 0.1, name="bold")], max_draft=4)
    propose = machine.drafters[0]._propose
    machine.drafters[0]._propose = lambda context, budget: propose(
        context, budget if len(context) % 3 == 0 else 0
    )
    (result,) = machine.decode(100)
    assert {choice.drafter for choice in result.stats.explain()} >= {"shy", "bold"}
    assert set(machine.target.drafted[:-4]) == {4}


# -- the first token -------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "begun"), [(100, 0), (20, 1)])
def test_a_first_token_does_not_wait_for_a_draft_model_to_read_a_long_prompt(
    length: int, begun: int
) -> None:
    """SERVE-10: the draft model begins in the second round, or at once where it is soon done."""
    machine = Machine.of([drafter(0.95, 0.02)])
    machine.run(200)
    machine.drafters[0].begun = 0
    prompt = (1, *TEXT[: length - 1])
    run = machine.engine.run([make_request(prompt, max_new_tokens=40)])
    next(run)
    assert machine.drafters[0].begun == begun
    list(run)
    assert machine.drafters[0].begun == 1


def test_what_rounds_with_a_models_drafts_took_is_held_against_plain_decoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entered: list[float] = []
    monkeypatch.setattr(Ledger, "note", lambda _, at_round, saved: entered.append(saved))
    machine = Machine.of([drafter(1.0, 0.05)])
    machine.run(200)
    rounds = sum(1 for count in machine.target.drafted if count)
    assert len(entered) == 2 * rounds > 0  # the request's own book, and that of all
    assert min(entered[4:-2]) > 1  # once it drafts far, it is always right
