"""What a lossy rule costs is measured, and never comes out as lossless."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from outrider.errors import OptionError
from outrider.proof.laws import first_tokens, total_variation, variation_floor
from outrider.proof.loss import Loss
from outrider.proof.loss_tables import loss_findings, loss_tables
from outrider.proof.measure_loss import measure_loss
from outrider.proof.prove import prove
from outrider.proof.report import write_report
from support.proving import WORKLOAD, loaded
from support.scripted import ScriptedDrafter
from support.tiny import VOCAB

RULES = ("lenience:0.2", "typical:0.1,0.1", "fly:1,0.05")
LAW = {(1, 2): 0.5, (1, 3): 0.25, (4,): 0.25}


@cache
def measured(rule: str, drafter: str = "none") -> Loss:
    """Measure a rule with the tiny model; three hundred draws tell well enough."""
    return measure_loss(loaded(drafter, lossy=rule), WORKLOAD[:1], tokens=40, draws=300)


@pytest.mark.parametrize("rule", RULES)
def test_a_lossy_rule_leads_measurably_away_from_the_targets_law(rule: str) -> None:
    loss = measured(rule)
    plain, likely, *_ = loss.distances
    assert plain.name == "plain decoding" and plain.drafted == 0
    assert not plain.is_measurable
    assert likely.accepted
    assert likely.first_tokens > 2 * likely.first_floor
    assert likely.texts > 2 * likely.texts_floor


@pytest.mark.parametrize("rule", ["lenience:1", f"typical:1,{VOCAB}", "fly:1,1"])
def test_at_its_limit_a_rule_leads_nowhere_and_is_not_lossless_all_the_same(rule: str) -> None:
    loss = measured(rule)
    assert not any(one.is_measurable for one in loss.distances)
    assert all(one.other == 0 for one in loss.departures)
    assert not loss.is_proved
    assert loss.verdict.startswith(f"NOT LOSSLESS: {loss.rule}; total variation of first tokens 0.")


@pytest.mark.parametrize("rule", ["lenience:0.2", "fly:0,0"])
def test_greedy_answers_take_fewer_rounds_and_are_others(rule: str) -> None:
    told, *_ = measured(rule).departures
    assert told.name == "told chains"
    assert told.other > 0 and told.other_matched == 0
    assert told.rounds < told.rounds_matched


def test_the_verdict_and_every_output_name_the_rule_and_the_distance(tmp_path: Path) -> None:
    loss = measured("lenience:0.2")
    worst = max(loss.distances[1:], key=lambda one: one.first_tokens - one.first_floor)
    numbers = f"{worst.first_tokens:.3f}, noise floor {worst.first_floor:.3f} ({worst.name})"
    start = f"NOT LOSSLESS: lenience:0.2; total variation of first tokens {numbers}; of texts 0."
    assert loss.verdict.startswith(start)
    document = json.loads(json.dumps(loss.to_dict(), allow_nan=False))
    assert (document["proved"], document["lossy"]) == (False, "lenience:0.2")
    assert document["sampled"][1]["measurable"] is True
    assert document["sampled"][1]["first_tokens"] == loss.distances[1].first_tokens
    for table in loss_tables(loss):
        assert all(len(row) == len(table.headers) for row in table.rows)
    write_report(loss, tmp_path / "loss.md", "outrider prove --lossy x")
    page = (tmp_path / "loss.md").read_text(encoding="utf-8")
    assert f"**{loss.verdict}**" in page and "outrider prove --lossy x" in page
    assert "Evidence of lossless" not in page


def test_a_drafter_that_is_dropped_or_drafts_nothing_is_named() -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("broken")

    broken = loaded(ScriptedDrafter(fail), lossy="fly:1,0.3")
    loss = measure_loss(broken, WORKLOAD, tokens=30, draws=200)
    lines = loss_findings(loss)
    assert any("RuntimeError: broken" in line for line in lines)
    assert "note: scripted drafted nothing, so that nothing could pass" in lines


def test_what_is_stopped_keeps_what_was_measured() -> None:
    def stop(name: str, share: float) -> None:
        if name == "sampled/likely drafts":
            raise KeyboardInterrupt

    loss = measure_loss(
        loaded("none", lossy="fly:1,0.3"), WORKLOAD, tokens=30, draws=200, progress=stop
    )
    assert [one.name for one in loss.distances] == ["plain decoding"]
    assert loss.verdict == "NOT LOSSLESS (interrupted): fly:1,0.3"


def test_a_lossy_decoder_cannot_be_proved_and_no_other_can_be_measured() -> None:
    with pytest.raises(OptionError, match=r"lossy is 'fly:1,0\.3', which promises nothing"):
        prove(loaded("ngram", lossy="fly:1,0.3"), WORKLOAD)
    with pytest.raises(OptionError, match="has no lossy rule"):
        measure_loss(loaded("ngram"), WORKLOAD)
    wrongs: list[dict[str, Any]] = [{"draws": 10}, {"tokens": 0}, {"seed": -1}]
    for wrong in wrongs:
        with pytest.raises(OptionError, match=next(iter(wrong))):
            measure_loss(loaded("ngram", lossy="fly:1,0.3"), WORKLOAD, **wrong)


# -- total variation -------------------------------------------------------------------------------


def test_total_variation_is_half_of_all_that_shares_and_chances_differ_by() -> None:
    counts = Counter({(1, 2): 5, (4,): 3, (9,): 2})
    assert total_variation([(counts, LAW)]) == pytest.approx((0.25 + 0.05 + 0.2) / 2)
    assert total_variation([(counts, LAW), ({(1, 2): 1}, {(1, 2): 1.0})]) == pytest.approx(0.125)
    assert first_tokens(LAW) == {(1,): 0.75, (4,): 0.25}


def test_draws_from_the_law_itself_stay_below_the_floor_and_others_do_not() -> None:
    """Each of 50 sound samplers fails with a chance of a thousandth: none in 95 of 100 seeds."""
    floor = variation_floor([LAW], 400)
    texts, chances = list(LAW), torch.tensor(list(LAW.values()))
    generator = torch.Generator().manual_seed(3)
    for _ in range(50):
        drawn = torch.multinomial(chances, 400, replacement=True, generator=generator)
        counts = Counter(texts[index] for index in drawn.tolist())
        assert total_variation([(counts, LAW)]) <= floor
    assert total_variation([({(1, 2): 280, (1, 3): 60, (4,): 60}, LAW)]) > floor
    assert variation_floor([LAW], 40) > floor > variation_floor([LAW, LAW], 400)
