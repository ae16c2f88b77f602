"""The law of sampled text: sound engines pass, faults of rule, noise or trimming do not."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from outrider import verification
from outrider.engine.state import RequestState
from outrider.proof.base import Check
from outrider.proof.distribution import DistributionTests
from outrider.proof.variants import chain_drafters, named_drafters
from outrider.sampling.draw import draw_row
from outrider.sampling.noise import KeyedRandomness, Stream
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.trees.layout import depths, prune
from outrider.types import DraftTree, Verification
from outrider.verification import Randomness, TargetRows
from support.heads import eagle_drafter
from support.proving import PROMPTS, do, loaded
from support.runs import draft_model
from support.scripted import ScriptedDrafter
from support.tiny import shared_model

DRAWS = 240
IDS = [ids for _, ids in PROMPTS]


def checks(*names: str, drafter: Any = "none", seed: int = 0, draws: int = DRAWS) -> list[Check]:
    """Run the tests of some names, in their order."""
    decoder = loaded(drafter)
    tests = DistributionTests(
        decoder,
        IDS,
        named_drafters(decoder),
        chain_drafters(decoder),
        draws=draws,
        seed=seed,
    )
    wanted = {f"distribution/{name}" for name in names}
    found = do(tests.work(), only=lambda key: not wanted or key in wanted)
    assert not wanted or set(found) == wanted
    return list(found.values())


def test_a_sound_engine_passes_and_the_controls_are_found_out() -> None:
    found = checks()
    names = [check.name for check in found]
    assert all(check.passed for check in found), [check.faults for check in found]
    assert all(check.counts["draws"] >= DRAWS for check in found)
    assert "plain decoding" in names
    for rule in ("rejection", "block", "traversal"):
        assert f"likely drafts, {rule}" in names
        assert f"noise of single rounds, {rule}" in names
        assert sum(name.startswith("control") and rule in name for name in names) == 1
    for check in found:
        assert check.counts.get("accepted", 1) > 0 or check.name == "plain decoding"


@pytest.mark.parametrize("kind", ["eagle", "model"])
def test_the_users_drafters_are_tested_under_the_rules_that_reject(kind: str) -> None:
    drafter = eagle_drafter(shared_model()) if kind == "eagle" else draft_model("noisy")
    rules = ["rejection", "traversal"] + (["block"] if kind == "model" else [])
    found = checks(*(f"{drafter.name}, {rule}" for rule in rules), drafter=drafter)
    for check in found:
        assert check.passed, check.faults
        assert check.counts["drafted"] > 0
        assert not check.dropped


def test_lookups_are_tested_once() -> None:
    (check,) = checks("ngram, rejection", drafter="ngram")
    assert check.passed


@pytest.mark.filterwarnings("ignore::outrider.errors.DrafterWarning")
def test_a_drafter_that_breaks_the_contract_is_named_and_changes_nothing() -> None:
    own = ScriptedDrafter(lambda *_: DraftTree.chain([64]))
    (check,) = checks("scripted, rejection", drafter=own)
    assert check.passed
    assert "vocabulary ends at 63" in check.dropped[0]


def test_noise_shared_by_draft_and_recovery_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """DIST-2: the recovered token was drawn by the race that the draft had won."""

    def shared(self: KeyedRandomness, key: int, weights: Tensor) -> int:
        noise = self._noise.race(
            Stream.DRAFT, (self._position,), weights.shape[-1], weights.device, index=1
        )
        return int((weights / noise[0]).argmax())

    monkeypatch.setattr(KeyedRandomness, "draw", shared)
    (check,) = checks("noise of single rounds, traversal")
    assert "not the target's law" in check.faults[0]


def test_noise_shared_by_draft_and_acceptance_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def shared(self: KeyedRandomness, key: int, probability: float) -> bool:
        noise = self._noise.race(Stream.DRAFT, (self._position + key,), 64, None, index=key + 1)  # type: ignore[arg-type]
        return float(noise.min()) * 64 < probability

    monkeypatch.setattr(KeyedRandomness, "accept", shared)
    (check,) = checks("contrary chains, rejection", draws=3 * DRAWS)
    assert not check.passed


@pytest.mark.parametrize("rule", ["rejection", "traversal"])
def test_drafts_withheld_for_the_token_drawn_are_found(
    monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    """DIST-4: an end of text that was drawn is not submitted, as it is not worth a row."""

    def trim(self: RequestState, tree: DraftTree) -> DraftTree:
        keep = [
            level <= self.room and not self._stopper.is_final(token)
            for token, level in zip(tree.tokens, depths(tree), strict=True)
        ]
        return prune(tree, keep)

    monkeypatch.setattr(RequestState, "trim", trim)
    kind = "chains" if rule == "rejection" else "trees"
    (check,) = checks(f"contrary {kind}, {rule}", draws=3 * DRAWS)
    assert not check.passed


def test_a_q_that_gets_lost_is_found_by_how_little_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DIST-3: the law is right without it."""
    real = verification.verify_rejection

    def without_q(rows: TargetRows, tree: DraftTree, randomness: Randomness) -> Verification:
        return real(rows, DraftTree(tree.tokens, tree.parents), randomness)

    monkeypatch.setattr(verification, "verify_rejection", without_q)
    (check,) = checks("contrary chains, rejection")
    (fault,) = check.faults
    assert "first drafts" in fault


def test_plain_decoding_with_the_wrong_noise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def sharper(scores: Tensor, *place: Any) -> tuple[int, float]:
        return draw_row(scores * 2, *place)

    monkeypatch.setattr("outrider.sampling.rows.draw_row", sharper)
    (check,) = checks("plain decoding")
    assert not check.passed


def test_what_decoding_raises_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(KeyedDraftSampler, "candidates", fail)
    found = checks("contrary chains, rejection", "plain decoding")
    assert [check.passed for check in found] == [True, False]
    assert "ZeroDivisionError: oh" in found[1].faults[0]
