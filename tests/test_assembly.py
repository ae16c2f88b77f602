"""Loading: drafters by name and by object, compiled passes, offloading, profiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outrider import assembly, load
from outrider.errors import LoadError, OptionError
from outrider.machine import this_machine
from outrider.profile import Profile, describe_subject
from outrider.targets.loading import LoadedModel, load_model
from outrider.targets.transformers import TransformersTarget
from support.files import save_tiny_model, word_tokenizer
from support.runs import assert_same
from support.scripted import always, silent
from support.tiny import random_ids, shared_model

PROMPT = random_ids(9, 2)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))


def names(decoder: Any) -> list[str]:
    return [drafter.name for drafter in decoder.engine.drafters]


def test_several_drafters_are_one_spec_with_commas(tmp_path: Path) -> None:
    draft = save_tiny_model(tmp_path / "draft")
    options: dict[str, Any] = {"tokenizer": word_tokenizer()}
    found = load(shared_model(), drafter=f"suffix,ngram,model:{draft}", **options)
    assert names(found) == ["suffix", "ngram", "model"]
    assert list(found.specs.values()) == ["suffix", "ngram", f"model:{draft}"]
    assert tuple(found.specs) == found.engine.drafters
    plain = load(shared_model(), **options)
    assert names(plain) == names(found.without_drafter()) == []
    expected = plain.generate(PROMPT, max_new_tokens=24)
    assert_same(found.generate(PROMPT, max_new_tokens=24), expected)


def test_objects_are_drafters_alone_or_in_a_list() -> None:
    one, other = always(3), silent()
    assert load(shared_model(), drafter=one).engine.drafters == (one,)
    for several in ([one], (one,)):
        assert load(shared_model(), drafter=several).engine.drafters == (one,)
    assert load(shared_model(), drafter=[]).engine.drafters == ()
    other.name = "other"
    found = load(shared_model(), drafter=[one, other])
    assert found.engine.drafters == (one, other)
    assert found.specs == {}
    expected = load(shared_model()).generate(PROMPT, max_new_tokens=16)
    assert_same(found.generate(PROMPT, max_new_tokens=16), expected)


def test_any_drafter_that_needs_a_prediction_asks_for_one() -> None:
    found = load(shared_model(), drafter="ngram,prediction")
    with pytest.raises(OptionError, match="needs a prediction"):
        found.generate(PROMPT)
    assert found.generate(PROMPT, prediction=[1, 2], max_new_tokens=4).stats.tokens == 4


def test_drafting_is_decided_by_the_round_unless_a_number_is_given() -> None:
    assert load(shared_model(), drafter="ngram").engine.max_draft == "auto"
    assert load(shared_model(), drafter="ngram", max_draft=3).engine.max_draft == 3


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown in a list": ({"drafter": "suffix,oracle"}, "oracle"),
    "none in a list": ({"drafter": "suffix,none"}, "none"),
    "twice": ({"drafter": "suffix,suffix"}, "suffix"),
    "list of texts": ({"drafter": ["suffix"]}, r"drafter is \['suffix'\]; it must be a spec"),
    "list with a class": ({"drafter": [type(always(3))]}, "it must be a spec"),
    "max_draft": ({"max_draft": "many"}, "max_draft is 'many'"),
    "max_draft none": ({"max_draft": None}, "max_draft is None"),
    "compile": ({"compile": "yes"}, "compile is 'yes'; it must be True, False or None"),
    "profile": ({"profile": True}, "profile is True; it must be None, False or the path"),
    "profile kind": ({"profile": 3}, "profile is 3"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_choice_is_refused_before_the_model_is_looked_for(case: str) -> None:
    options, message = BAD[case]
    with pytest.raises(OptionError, match=message):
        load("/no/such/model", **options)


@pytest.mark.parametrize("compile", [None, True, False])
def test_compiling_is_the_targets_business(
    monkeypatch: pytest.MonkeyPatch, compile: bool | None
) -> None:
    asked: list[bool | None] = []

    class Watched(TransformersTarget):
        def __init__(self, model: Any, **options: Any) -> None:
            asked.append(options.pop("compile"))
            super().__init__(model, compile=False, **options)

    monkeypatch.setattr(assembly, "TransformersTarget", Watched)
    load(shared_model(), compile=compile)
    assert asked == [compile]


@pytest.mark.parametrize("device", [None, "auto", "cpu"])
def test_offloading_reaches_the_loader_and_a_draft_model_stands_beside_the_target(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str | None
) -> None:
    folder = save_tiny_model(tmp_path / "target")
    targets: list[dict[str, Any]] = []
    drafters: list[Any] = []

    def loading(spec: Any, **options: Any) -> LoadedModel:
        targets.append(dict(options))
        return load_model(spec, device="cpu")

    def building(*_: Any, device: Any, **__: Any) -> Any:
        drafters.append(str(device))
        return silent()

    monkeypatch.setattr(assembly, "load_model", loading)
    monkeypatch.setattr(assembly, "build_drafter", building)
    options: dict[str, Any] = {"max_memory": {"cpu": "1MiB"}, "offload_folder": str(tmp_path)}
    load(str(folder), device=device, drafter=f"model:{folder}", **options)
    assert targets[0].items() >= {"device": device, **options}.items()
    assert drafters == ["cpu"]


def measured() -> Profile:
    """Return a profile of the shared model, as a decoder learnt it."""
    decoder = load(shared_model(), drafter="ngram", profile=False)
    decoder.generate(PROMPT, max_new_tokens=24)
    learnt = decoder.engine.to_profile()
    target: Any = decoder.engine.target
    return Profile(
        subject=describe_subject(decoder.loaded, target),
        machine=this_machine(target.device),
        passes=learnt["pass"],
        drafters=learnt["drafters"],
    )


def test_a_stored_profile_is_what_an_engine_begins_with(tmp_path: Path) -> None:
    profile = measured()
    profile.save()
    found = load(shared_model(), drafter=[always(3)])
    assert found.profile == profile
    (begun,), (kept,) = (p["curves"] for p in (found.engine.to_profile()["pass"], profile.passes))
    assert begun["level"] == pytest.approx(kept["level"])
    assert begun["shape"] == pytest.approx(kept["shape"])
    known = load(shared_model(), drafter="ngram").engine.to_profile()
    assert known["drafters"]["ngram"] == profile.drafters["ngram"]
    fresh = load(shared_model(), drafter="ngram", profile=False)
    assert fresh.profile is None
    assert fresh.engine.to_profile()["pass"] != profile.passes
    assert fresh.engine.to_profile()["drafters"]["ngram"] != profile.drafters["ngram"]


def test_of_two_draft_models_each_begins_with_its_own(tmp_path: Path) -> None:
    one, other = (save_tiny_model(tmp_path / name) for name in ("one", "other"))
    options: dict[str, Any] = {"tokenizer": word_tokenizer()}
    profile = measured()
    record = profile.drafters["ngram"]
    name = load(shared_model(), **options).name
    subject = replace(profile.subject, model=name)
    path = replace(profile, subject=subject, drafters={f"model:{other}": record}).save(
        tmp_path / "profile.json"
    )
    spec = f"model:{one},model:{other}"
    learnt = load(shared_model(), drafter=spec, profile=path, **options).engine.to_profile()
    first, second = learnt["drafters"].values()
    assert second["acceptance"] == record["acceptance"]
    assert first["acceptance"] != record["acceptance"]


def test_a_profile_given_by_path_has_to_be_one_that_fits(tmp_path: Path) -> None:
    path = measured().save(tmp_path / "mine.json")
    assert load(shared_model(), profile=path).profile == Profile.load(path)
    with pytest.raises(OptionError, match="does not fit"):
        load(shared_model(), profile=str(path), numerics="invariant")
    with pytest.raises(LoadError, match="no usable profile"):
        load(shared_model(), profile=tmp_path / "missing.json")
