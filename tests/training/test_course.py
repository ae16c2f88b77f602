"""Whole runs on a tiny model: from prompts to a drafter that is better than an untrained one."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import outrider
from outrider import Decoder
from outrider.errors import LoadError, OptionError
from outrider.heads.eagle import EagleHead
from outrider.heads.medusa import MedusaHeads
from outrider.training.base import Sample
from outrider.training.copying import draft, eagle, texts
from outrider.training.course import DRAFTER, Graduate, train
from outrider.training.lessons import build_lesson
from outrider.training.pace import Report
from outrider.training.recipe import Recipe
from outrider.training.settings import TrainOptions
from support.files import word_tokenizer
from support.tiny import VOCAB, tiny_model


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    model = tiny_model(dtype=torch.float32, scale=8.0, num_hidden_layers=4)
    return outrider.load(model, tokenizer=word_tokenizer(), max_batch=8)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "prompts.jsonl"
    words = [f"w{i % 60} w{(7 * i) % 60} w{(11 * i + 3) % 60}" for i in range(40)]
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in words))
    return path


def recipe_of(kind: Any, prompts: Path, **choices: Any) -> Recipe:
    known: dict[str, Any] = {
        "data": (str(prompts),),
        "answer_tokens": 24,
        "draft_vocabulary": VOCAB,
        "batch": 256,
        "max_tokens": 64,
        "heads": 2,
        "layers": 2,
        "steps": 2,
        "questions": 2,
        "held_out": 0.1,
    }
    return Recipe(kind=kind, **(known | choices))


def options_of(**choices: Any) -> TrainOptions:
    known: dict[str, Any] = {
        "learning_rate": 3e-3,
        "epochs": 8,
        "save_every": 5,
        "evaluate_every": 5,
    }
    return TrainOptions(**(known | choices))


KINDS = [("eagle", {}), ("eagle", {"version": 1}), ("medusa", {}), ("draft", {})]


@pytest.mark.parametrize(("kind", "choices"), KINDS)
def test_a_run_ends_with_a_drafter_that_learnt_and_a_card(
    kind: str, choices: dict[str, Any], decoder: Decoder, prompts: Path, tmp_path: Path
) -> None:
    reports: list[Report] = []
    found = train(
        decoder,
        recipe_of(kind, prompts, **choices),
        options_of(evaluate_every=1),
        tmp_path,
        command=("outrider", "train"),
        progress=reports.append,
    )
    looks = [report.held_out for report in reports if report.held_out is not None]
    # The first step is part of the warm-up: it leaves next to all as it was.
    assert looks[-1].alphas[0] > looks[0].alphas[0]
    assert decoder.name in (tmp_path / DRAFTER / "README.md").read_text()
    assert found.evaluation is not None
    assert found.evaluation.differences == ()
    assert found.evaluation.error is None
    again = outrider.load(
        decoder.loaded.model, tokenizer=decoder.tokenizer, drafter=found.spec, max_draft=4
    )
    result = again.generate([5, 6, 7], max_new_tokens=20, temperature=0)
    assert result.stats.proposed > 0
    assert result.stats.drafter_error is None


@pytest.mark.parametrize("kind", ["eagle", "medusa", "draft"])
def test_a_run_can_begin_with_what_another_has_learnt(
    kind: str, decoder: Decoder, prompts: Path, tmp_path: Path
) -> None:
    first = train(decoder, recipe_of(kind, prompts, questions=0), options_of(), tmp_path / "1")
    reports: list[Report] = []
    train(
        decoder,
        recipe_of(kind, prompts, questions=0, start=str(first.folder)),
        options_of(epochs=1, evaluate_every=1),
        tmp_path / "2",
        progress=reports.append,
    )
    held = reports[0].held_out
    assert held is not None
    assert first.outcome.place.best is not None
    assert held.tau == pytest.approx(first.outcome.place.best.tau, abs=0.05)


def test_medusa_heads_that_get_more_blocks_begin_as_they_were(
    decoder: Decoder, prompts: Path, tmp_path: Path
) -> None:
    options = options_of(epochs=1)
    first = train(decoder, recipe_of("medusa", prompts, questions=0), options, tmp_path / "1")
    recipe = recipe_of("medusa", prompts, questions=0, start=str(first.folder), blocks=3)
    lesson = build_lesson(recipe, decoder.loaded.model, [], (), 0, ExitStack())
    assert isinstance(lesson.module, MedusaHeads)
    before = MedusaHeads.load(
        replace(lesson.module.config, num_layers=1),
        {name: one.float() for name, one in weights(first).items()},
    )
    hidden = torch.randn(5, lesson.module.config.hidden_size)
    for old, new in zip(before.heads, lesson.module.heads, strict=True):
        assert torch.equal(new(hidden), old(hidden))
    options = options_of(epochs=1, learning_rate=0.01)
    found = weights(train(decoder, recipe, options, tmp_path / "2"))
    assert all(found[f"heads.{head}.blocks.2.weight"].any() for head in range(2))


def test_a_draft_model_says_and_goes_on_saying_the_ids_it_was_taught(
    decoder: Decoder, prompts: Path, tmp_path: Path
) -> None:
    options = options_of(epochs=1)
    recipe = recipe_of("draft", prompts, draft_vocabulary=20, questions=0)
    first = train(decoder, recipe, options, tmp_path / "1")
    assert first.spec == f"model:{first.folder}"
    card = (first.folder / "README.md").read_text()
    assert f"--drafter {first.spec}" in card and "# Draft model for" in card
    written = weights(first)
    assert len(written["token_ids"]) == 20
    assert f"| token ids drafted | 20 of {VOCAB} |" in card
    assert "| of the tokens held out, among them |" in card
    assert {one.dtype for name, one in written.items() if name != "token_ids"} == {torch.bfloat16}
    # A larger vocabulary gets what is said most of the rest, a smaller one keeps what is said most.
    known = set(written["token_ids"].tolist())
    for size in (None, 10, 30):
        recipe = recipe_of(
            "draft", prompts, draft_vocabulary=size, start=str(first.folder), questions=0
        )
        second = weights(train(decoder, recipe, options, tmp_path / str(size)))
        ids = set(second["token_ids"].tolist())
        assert len(ids) == (size or 20) and (ids >= known or ids <= known)
        assert not torch.equal(second["model.norm.weight"], written["model.norm.weight"])


@pytest.mark.parametrize(("kind", "module"), [("draft", draft), ("eagle", eagle)])
def test_a_run_that_is_resumed_does_not_learn_to_copy_again(
    decoder: Decoder,
    prompts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: Any,
    module: Any,
) -> None:
    monkeypatch.setattr(module, "_STEPS", 2)
    monkeypatch.setattr(texts, "_MADE_UP", 60)
    monkeypatch.setattr(texts, "_TOKENS", 300)
    recipe, options = recipe_of(kind, prompts, copying=True, questions=0), options_of(epochs=2)
    whole = weights(train(decoder, recipe, options, tmp_path / "whole"))

    def stop(report: Report) -> None:
        if report.step == 3:
            raise KeyboardInterrupt

    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        train(decoder, recipe, options, tmp_path / "parts", progress=stop, say=said.append)
    assert any("learning to copy" in text for text in said)
    said.clear()
    run = train(decoder, recipe, options, tmp_path / "parts", resume=True, say=said.append)
    assert not any("learning to copy" in text for text in said)
    parts = weights(run)
    assert parts.keys() == whole.keys()
    assert all(torch.equal(part, whole[name]) for name, part in parts.items())
    name = next(name for name in whole if name.endswith("layers.0.self_attn.q_proj.weight"))
    assert len(whole[name]) > 32


def test_a_head_that_gets_more_words_says_of_the_others_what_it_said(
    decoder: Decoder, prompts: Path, tmp_path: Path
) -> None:
    options, model = options_of(epochs=1), decoder.loaded.model
    first = train(
        decoder, recipe_of("eagle", prompts, draft_vocabulary=20, questions=0), options, tmp_path
    )
    samples = [Sample(tuple(range(VOCAB)))]
    heads = []
    for size in (None, 30, VOCAB):
        recipe = recipe_of("eagle", prompts, draft_vocabulary=size, start=str(first.folder))
        module = build_lesson(recipe, model, samples, (), 0, ExitStack()).module
        assert isinstance(module, EagleHead)
        heads.append(module)
    before, wider, whole = heads
    assert before.target_ids is not None and wider.target_ids is not None
    assert whole.target_ids is None
    assert len(wider.target_ids) == 30
    hidden = torch.randn(5, before.config.hidden_size)
    for head, ids in ((wider, wider.target_ids), (whole, torch.arange(VOCAB))):
        places = torch.searchsorted(ids, before.target_ids)
        torch.testing.assert_close(head.logits(hidden)[:, places], before.logits(hidden))
        new = next(i for i in ids.tolist() if i not in before.target_ids.tolist())
        own: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
        wanted = hidden @ own.weight[new]
        torch.testing.assert_close(head.logits(hidden)[:, ids.tolist().index(new)], wanted)


def test_a_head_that_keeps_fewer_words_says_of_those_what_it_said(
    decoder: Decoder, prompts: Path, tmp_path: Path
) -> None:
    options, model = options_of(epochs=1), decoder.loaded.model
    whole = train(decoder, recipe_of("eagle", prompts, questions=0), options, tmp_path)
    samples = [Sample((3, *range(20, 30), *range(20, 30)))]
    hidden = torch.randn(5, model.config.hidden_size)
    said = []
    for size in (None, 11):
        recipe = recipe_of("eagle", prompts, draft_vocabulary=size, start=str(whole.folder))
        module = build_lesson(recipe, model, samples, (5,), 0, ExitStack()).module
        assert isinstance(module, EagleHead)
        said.append((module.target_ids, module.logits(hidden)))
    (every, before), (few, after) = said
    assert every is None and few is not None
    assert few.tolist() == [5, *range(20, 30)]
    torch.testing.assert_close(after, before[:, few])


def test_a_draft_model_does_not_begin_with_a_head(
    decoder: Decoder, prompts: Path, tmp_path: Path
) -> None:
    options = options_of(epochs=1)
    head = train(decoder, recipe_of("medusa", prompts, questions=0), options, tmp_path / "1")
    recipe = recipe_of("draft", prompts, start=str(head.folder))
    with pytest.raises(LoadError, match="is Medusa-1: write medusa:"):
        train(decoder, recipe, options, tmp_path / "2")


def weights(graduate: Graduate) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = load_file(graduate.folder / "model.safetensors")
    return found


def test_a_run_that_was_killed_anywhere_ends_with_the_same_weights(
    decoder: Decoder, prompts: Path, tmp_path: Path
) -> None:
    recipe, options = recipe_of("eagle", prompts, questions=0), options_of(epochs=5)
    expected = weights(train(decoder, recipe, options, tmp_path / "whole"))

    stops = [0, 3, 7, 8, 10]

    class KilledError(Exception):
        pass

    def say(text: str) -> None:
        if stops[:1] == [0] and "answering" in text:
            raise KilledError

    def progress(report: Report) -> None:
        if stops and 0 < stops[0] <= report.step:
            raise KilledError

    while True:
        try:
            found = train(
                decoder,
                recipe,
                options,
                tmp_path / "killed",
                resume=True,
                say=say,
                progress=progress,
            )
            break
        except KilledError:
            del stops[0]
    assert not stops
    for name, tensor in weights(found).items():
        assert torch.equal(tensor, expected[name]), name


def test_a_folder_with_a_run_is_not_trained_in_by_chance(
    decoder: Decoder, prompts: Path, tmp_path: Path
) -> None:
    recipe = recipe_of("medusa", prompts, questions=0)
    train(decoder, recipe, options_of(epochs=1), tmp_path)
    with pytest.raises(OptionError, match="holds a run"):
        train(decoder, recipe, options_of(epochs=1), tmp_path)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"loss": "tv"}, "loss is 'tv'"),
        ({"version": 2}, "version is 2; it must be 1 or 3"),
        ({"steps": 0}, "steps is 0, must be at least 1"),
        ({"data": ()}, "no data is named"),
        ({"version": 1, "loss": "forward-kl"}, "EAGLE-1 has a loss of its own"),
        ({"version": 1, "closeness": 1.0}, "an aim of EAGLE-3 heads only"),
        ({"version": 1, "copying": True}, "given to EAGLE-3 heads and draft models only"),
        ({"kind": "medusa", "copying": True}, "given to EAGLE-3 heads and draft models only"),
        ({"closeness": -1.0}, "closeness is -1.0"),
        ({"texts": True, "data": ("self",)}, "texts are read from files"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(choices: dict[str, Any], message: str) -> None:
    known: dict[str, Any] = {"kind": "eagle", "prompts": Path("x")}
    with pytest.raises(OptionError, match=message):
        recipe_of(**(known | choices))


def test_a_draft_model_needs_fewer_layers_than_its_target(
    decoder: Decoder, prompts: Path, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match="layers is 4; the target has 4"):
        train(decoder, recipe_of("draft", prompts, layers=4), options_of(), tmp_path)


@pytest.mark.parametrize("kind", ["eagle", "medusa", "draft"])
def test_a_run_with_a_store_of_features_learns_the_same_as_one_without(
    kind: str, decoder: Decoder, prompts: Path, tmp_path: Path
) -> None:
    features = str(tmp_path / "features")
    found = []
    for name, choices in (("plain", {}), ("kept", {"features": features})):
        recipe = recipe_of(kind, prompts, questions=0, **choices)
        train(decoder, recipe, options_of(epochs=1), tmp_path / name)
        found.append(load_file(tmp_path / name / DRAFTER / "model.safetensors"))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    # Another run learns from the answers of the first, and reads the states that are kept.
    size = Path(features).stat().st_size
    answers = tmp_path / "plain" / "answers.jsonl"
    recipe = recipe_of(kind, answers, questions=0, features=features)
    train(decoder, recipe, options_of(epochs=1), tmp_path / "again")
    again = load_file(tmp_path / "again" / DRAFTER / "model.safetensors")
    assert all(torch.equal(found[0][name], again[name]) for name in again)
    assert Path(features).stat().st_size == size > 1000
