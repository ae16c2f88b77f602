"""A draft model with its target's embeddings drafts like a whole one, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import outrider
from outrider import Decoder, bundled
from outrider.bundled import bundled_head
from outrider.checkpoints.base import Checkpoint
from outrider.drafters import build_drafter, read_head
from outrider.drafters.base import DraftRequest
from outrider.drafters.model import ModelDrafter
from outrider.drafters.spec import parse_spec
from outrider.engine.engine import Engine
from outrider.errors import LoadError, OptionError, UnsupportedModelError, VocabularyMismatchError
from outrider.sampling.noise import KeyedNoise
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.targets.base import Rows, ScoredRows
from outrider.targets.kernels.layers import KernelLinear
from outrider.targets.loading import LoadedModel, load_model
from outrider.targets.transformers import TransformersTarget
from outrider.types import DraftTree, Rule
from support.drafts import draft_of, save_draft
from support.files import save_tiny_model, word_tokenizer
from support.laws import ALARM, NEAR_LOGITS, VOCABULARY, chi_square_excess
from support.runs import assert_same, collect, decode, make_request, shared_target
from support.scripted import ScriptedTarget
from support.tiny import VOCAB, random_ids, shared_model, tiny_model

PROMPT = random_ids(9, 4)
SOME = tuple(range(1, VOCAB, 2))
RULES: tuple[Rule, ...] = ("match", "rejection", "block", "traversal")


def drafter_of(draft: Checkpoint, target: TransformersTarget, width: int = 1) -> ModelDrafter:
    """Return the drafter that a spec of this draft model would give, or a wider one."""
    loaded = LoadedModel(target.model, None, "org/target")
    found = build_drafter(parse_spec("model:x"), loaded, target, head=draft)
    assert isinstance(found, ModelDrafter)
    if width == 1:
        return found
    return ModelDrafter(
        found._model, vocab_size=VOCAB, shared_ids=VOCAB, width=width, ids=found._ids
    )


class Recording(ModelDrafter):
    """Keeps its proposals."""

    def __init__(self, like: ModelDrafter) -> None:
        super().__init__(like._model, vocab_size=VOCAB, shared_ids=VOCAB, ids=like._ids)
        self.proposals: list[DraftTree] = []

    def propose(self, states: Sequence[Any], budgets: Sequence[int]) -> list[DraftTree]:
        trees = super().propose(states, budgets)
        self.proposals += trees
        return trees


class Masked(TransformersTarget):
    """A whole draft model that finds all but some token ids impossible."""

    ids: Sequence[int] = range(VOCAB)

    def score(self, rows: Sequence[Rows], layers: Sequence[int] = ()) -> ScoredRows:
        scored = super().score(rows, layers)
        others = [one for one in range(VOCAB) if one not in self.ids]
        masked = [
            part.index_fill(-1, torch.tensor(others, dtype=torch.long), -torch.inf)
            for part in scored.logits
        ]
        return replace(scored, logits=tuple(masked))


def masked(ids: Sequence[int], width: int = 1) -> ModelDrafter:
    model = Masked(shared_model())
    model.ids = ids
    return ModelDrafter(model, vocab_size=VOCAB, shared_ids=VOCAB, width=width)


# -- what is drafted ----------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_some_ids_are_drafted_as_by_a_model_that_finds_all_others_impossible(
    temperature: float, width: int
) -> None:
    drafters = [
        drafter_of(draft_of(shared_model(), ids=SOME), shared_target(), width),
        masked(SOME, width),
    ]
    found = []
    for drafter in drafters:
        noise = KeyedNoise(3)
        sampler = KeyedDraftSampler(temperature, noise, "match", vocab_size=VOCAB)
        state = drafter.begin(DraftRequest((*PROMPT, 2), 200, sampler))
        trees = []
        for step in range(5):
            (tree,) = drafter.propose([state], [5])
            trees.append(tree)
            # What the drafter cannot say is read all the same.
            drafter.observe([state], [(*tree.tokens[:step], 2 * step)])
        found.append(trees)
    for ours, theirs in zip(*found, strict=True):
        assert (ours.tokens, ours.parents) == (theirs.tokens, theirs.parents)
        assert set(ours.tokens) <= set(SOME)


@pytest.mark.parametrize("rule", RULES[1:])
def test_q_is_over_all_of_the_targets_ids_and_zero_at_those_not_drafted(rule: Rule) -> None:
    drafter = drafter_of(draft_of(shared_model(), ids=SOME), shared_target())
    sampler = KeyedDraftSampler(0.7, KeyedNoise(3), rule, vocab_size=VOCAB)
    (tree,) = drafter.propose([drafter.begin(DraftRequest(PROMPT, 200, sampler))], [3])
    assert tree.q is not None
    model: Any = shared_model()
    with torch.inference_mode():
        logits = model(torch.tensor([[*PROMPT, *tree.tokens[:-1]]]), use_cache=False).logits[0, -3:]
    law = torch.zeros(3, VOCAB, dtype=torch.float64)
    law[:, list(SOME)] = (logits[:, list(SOME)] / 0.7).softmax(-1)
    torch.testing.assert_close(tree.q, law)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_copy_that_drafts_all_ids_is_always_right(temperature: float, rule: Rule) -> None:
    drafter = drafter_of(draft_of(shared_model()), shared_target())
    request = make_request(PROMPT, temperature=temperature, seed=5, max_new_tokens=60)
    found = decode(shared_target(), request, drafter, rule=rule)
    assert found.stats.acceptance_rate == 1
    if rule == "match" or temperature == 0:
        assert_same(found, decode(shared_target(), request))


# -- what is emitted ----------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [None, SOME, (3,)])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_text_is_that_of_plain_decoding_alone_and_in_a_batch(
    temperature: float, width: int, ids: Sequence[int] | None
) -> None:
    draft = draft_of(shared_model(), ids=ids, noise=0.01)
    drafter = drafter_of(draft, shared_target(), width)
    wanted = [
        make_request(random_ids(5 + 3 * i, i), temperature=temperature, seed=i, max_new_tokens=24)
        for i in range(4)
    ]
    found = collect(Engine(shared_target(), drafter, max_draft=5, max_batch=3), wanted)
    for result, request in zip(found, wanted, strict=True):
        assert_same(result, decode(shared_target(), request))
        assert result.stats.drafter_error is None
        assert result.stats.proposed > 0
    if ids != (3,):
        assert sum(result.stats.accepted for result in found) > 0
    assert not drafter._model._sequences  # type: ignore[attr-defined]


def some_columns(context: tuple[int, ...]) -> list[float]:
    row = NEAR_LOGITS(context)
    return [row[0], row[1], row[3]]


@pytest.mark.parametrize(("rule", "width"), [("rejection", 1), ("block", 1), ("traversal", 2)])
def test_drafting_some_ids_leaves_the_law_of_sampled_text_alone(rule: Rule, width: int) -> None:
    drafter = ModelDrafter(
        ScriptedTarget(some_columns, VOCABULARY),
        vocab_size=VOCABULARY,
        shared_ids=VOCABULARY,
        width=width,
        ids=torch.tensor([0, 1, 3]),
    )
    assert abs(chi_square_excess(rule, drafter)) < ALARM


def test_the_law_check_notices_ids_that_are_not_those_drafted() -> None:
    class Mislabelled(ModelDrafter):
        def propose(self, states: Sequence[Any], budgets: Sequence[int]) -> list[DraftTree]:
            trees = super().propose(states, budgets)
            return [replace(t, q=None if t.q is None else t.q[:, [1, 0, 2, 3]]) for t in trees]

    drafter = Mislabelled(
        ScriptedTarget(some_columns, VOCABULARY),
        vocab_size=VOCABULARY,
        shared_ids=VOCABULARY,
        ids=torch.tensor([0, 1, 3]),
    )
    assert chi_square_excess("rejection", drafter) > 5 * ALARM


# -- from a folder ------------------------------------------------------------------------------


@pytest.fixture
def spec(tmp_path: Path) -> str:
    return save_draft(tmp_path / "draft", draft_of(shared_model(), ids=SOME, noise=0.01))


def load(spec: str, **options: Any) -> Decoder:
    return outrider.load(
        shared_model(), tokenizer=word_tokenizer(), drafter=spec, max_draft=4, **options
    )


def test_a_folder_is_a_drafter_by_the_spec_of_a_model(spec: str) -> None:
    decoder = load(spec)
    (drafter,) = decoder.engine.drafters
    assert isinstance(drafter, ModelDrafter) and drafter._ids is not None
    assert list(decoder.specs.values()) == [spec]
    with decoder.session() as session:
        first = decoder.generate(PROMPT, max_new_tokens=16, temperature=0, session=session)
        prompt = (*PROMPT, *first.token_ids, 5, 6)
        second = decoder.generate(prompt, max_new_tokens=16, temperature=0, session=session)
    plain = decoder.without_drafter()
    assert_same(first, plain.generate(PROMPT, max_new_tokens=16, temperature=0))
    assert_same(second, plain.generate(prompt, max_new_tokens=16, temperature=0))
    assert first.stats.accepted + second.stats.accepted > 0


def test_invariant_numerics_are_the_targets_business(spec: str) -> None:
    decoder = load(spec, numerics="invariant")
    found = decoder.generate(PROMPT, max_new_tokens=12, temperature=0)
    assert_same(found, decoder.without_drafter().generate(PROMPT, max_new_tokens=12, temperature=0))
    assert found.stats.accepted > 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("suffix", ["", "@int8"])
def test_every_type_of_target_is_shared(suffix: str, dtype: str, tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "target", vocab_size=VOCAB)
    draft = draft_of(load_model(str(folder)).model, ids=SOME)
    spec = save_draft(tmp_path / "draft", draft)
    decoder = outrider.load(f"{folder}{suffix}", dtype=dtype, drafter=spec, max_draft=4)
    found = decoder.generate(PROMPT, max_new_tokens=16, temperature=0)
    assert found.stats.drafter_error is None
    assert found.stats.proposed > 0
    drafted = decoder.engine.drafters[0]._model.model  # type: ignore[attr-defined]
    assert drafted.get_input_embeddings() is decoder.loaded.model.get_input_embeddings()
    assert {one.dtype for one in drafted.parameters()} == {decoder.loaded.model.dtype}


def test_weights_on_disk_are_shared_whole_and_not_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))
    folder = str(save_tiny_model(tmp_path / "target", vocab_size=VOCAB))
    whole = load_model(folder).model
    spread: dict[str, Any] = {"device": "auto", "max_memory": {"cpu": 0}}
    spec = save_draft(tmp_path / "whole", draft_of(whole))
    decoder = outrider.load(folder, drafter=spec, max_draft=4, **spread)
    found = decoder.generate(PROMPT, max_new_tokens=16, temperature=0)
    assert found.stats.acceptance_rate == 1
    some = save_draft(tmp_path / "some", draft_of(whole, ids=SOME))
    with pytest.raises(UnsupportedModelError, match="quantised or offloaded"):
        outrider.load(folder, drafter=some, **spread)


@pytest.mark.parametrize("ids", [None, SOME])
def test_a_compiled_target_has_the_drafts_own_layers_by_kernels(
    ids: Sequence[int] | None,
) -> None:
    model: Any = tiny_model(dtype=torch.float32)
    target = TransformersTarget(model)
    target.is_compiled = True  # as far as a drafter can tell
    drafter = drafter_of(draft_of(model, ids=ids), target)
    draft: Any = drafter._model.model  # type: ignore[attr-defined]
    layers = [one for one in draft.modules() if isinstance(one, KernelLinear)]
    assert len(layers) == 2 * 7 + (ids is not None)
    assert not any(isinstance(one, KernelLinear) for one in model.modules())
    if ids is None:
        assert draft.get_output_embeddings() is model.get_output_embeddings()
    request = make_request(PROMPT, max_new_tokens=20)
    found = decode(target, request, drafter)
    assert found.stats.drafter_error is None and found.stats.accepted > 0


# -- what is refused ----------------------------------------------------------------------------


def refusals() -> list[tuple[Callable[[Path], str], type[Exception], str]]:
    def wider(folder: Path) -> str:
        return save_draft(folder, draft_of(tiny_model(hidden_size=48, head_dim=12)))

    def other_ids(folder: Path) -> str:
        return save_draft(folder, draft_of(tiny_model(vocab_size=72)))

    def as_a_head(folder: Path) -> str:
        return save_draft(folder, draft_of(shared_model())).replace("model:", "eagle:")

    def damaged(folder: Path) -> str:
        spec = save_draft(folder, draft_of(shared_model()))
        (folder / "model.safetensors").write_bytes(b"no weights")
        return spec

    return [
        (wider, LoadError, "reads embeddings of size 48, but the target's have 32"),
        (other_ids, VocabularyMismatchError, "is for 72 token ids, but the target has 64"),
        (as_a_head, LoadError, "is a draft model: write model:"),
        (damaged, LoadError, "model.safetensors: damaged"),
    ]


@pytest.mark.parametrize(("write", "error", "problem"), refusals())
def test_what_does_not_fit_is_refused_before_the_target_is_read(
    write: Callable[[Path], str], error: type[Exception], problem: str, tmp_path: Path
) -> None:
    spec = write(tmp_path / "draft")
    shared_model().config.save_pretrained(tmp_path / "target")  # no weights
    with pytest.raises(error, match=problem):
        outrider.load(str(tmp_path / "target"), drafter=spec)
    with pytest.raises(error, match=problem):
        load(spec)


# -- what comes along ---------------------------------------------------------------------------


def test_a_model_without_a_name_is_the_one_that_comes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundled, "_FOLDER", tmp_path)
    save_draft(tmp_path / "org" / "draft", draft_of(shared_model(), ids=SOME))
    for target in ("org", "org@int8"):
        found = read_head(parse_spec("model"), target, shared_model().config)
        assert found is not None and found.kind == "draft"
        assert bundled_head("model", target) == tmp_path / "org" / "draft"
    with pytest.raises(OptionError, match=r"names no model, and none comes .* for other; write "):
        read_head(parse_spec("model"), "other", shared_model().config)
    with pytest.raises(OptionError, match="train one: outrider train draft"):
        load("model")
