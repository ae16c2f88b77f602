"""What an EAGLE head is taught is what it will be asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from outrider.drafters.base import DraftRequest
from outrider.heads.eagle import EagleHead
from outrider.sampling.noise import KeyedNoise
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.training.base import Batch, Sample, batch_of
from outrider.training.eagle import Eagle1Lesson, Eagle3Lesson
from outrider.training.initial import default_eagle_config, initial_eagle_head
from outrider.training.teacher import Teacher
from support.attending import CausalAttend
from support.heads import eagle_config, eagle_drafter
from support.seeded import eagle_tensors, vocabulary_maps
from support.tiny import VOCAB, random_ids, shared_model, tiny_model


def head_of(version: int, **fields: Any) -> EagleHead:
    config = eagle_config(version, **fields)
    return EagleHead.load(config, eagle_tensors(config)).double()


def teacher_of(head: EagleHead) -> Teacher:
    layers = head.config.feature_layers
    assert layers is not None
    ids = head.target_ids
    return Teacher(shared_model(), layers, ids)


def serving_logits(head: EagleHead, text: tuple[int, ...], path: tuple[int, ...]) -> Tensor:
    """Return the logits after a drafted path, read pair by pair as a drafter does."""
    teacher = teacher_of(head)
    table: Any = shared_model().get_input_embeddings()
    attend = CausalAttend()
    with torch.inference_mode():
        features = teacher.teach(batch_of([Sample(text[:-1])])).features[0]
        hidden = head.fuse(features)
        embeddings = head.embed(torch.tensor(text[1:]), table)
        output = head(embeddings, hidden, torch.arange(len(hidden)), attend)
        for step, token in enumerate(path):
            embedding = head.embed(torch.tensor([token]), table)
            position = torch.tensor([len(hidden) + step])
            output = head(embedding, output.state[-1:], position, attend)
        found: Tensor = head.logits(output.output[-1:])[0]
    return found


@pytest.mark.parametrize("layers", [1, 2])
def test_unrolled_steps_say_what_the_drafter_will_say(
    layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRAIN-6, for every step and every place in the text."""
    head = head_of(3, num_layers=layers)
    lesson = Eagle3Lesson(head, teacher_of(head), steps=3)
    text = random_ids(14, 2)
    said: list[Tensor] = []
    logits = head.logits

    def noted(output: Tensor) -> Tensor:
        said.append(logits(output))
        return said[-1]

    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(head, "logits", noted)
        lesson.marks(batch_of([Sample(text)]))
    for step, rows in enumerate(said):
        assert len(rows) == len(text) - 2 - step
        for base, row in enumerate(rows):
            path = text[base + 2 : base + 2 + step]
            expected = serving_logits(head, text[: base + 2], path)
            torch.testing.assert_close(row, expected, atol=1e-9, rtol=1e-9)


def test_the_drafter_itself_drafts_what_was_taught() -> None:
    head = head_of(3)
    drafter = eagle_drafter(shared_model(), 3)
    text = random_ids(20, 4)
    sampler = KeyedDraftSampler(0.0, KeyedNoise(1), "match", vocab_size=VOCAB)
    state = drafter.begin(DraftRequest(text[:-1], 64, sampler))
    features = teacher_of(head).teach(batch_of([Sample(text[:-1])])).features[0]
    drafter.observe([state], [text[-1:]], [features])
    (tree,) = drafter.propose([state], [1])
    ids = head.target_ids
    assert ids is not None
    assert tree.tokens[0] == int(ids[serving_logits(head, text, ()).argmax()])


def test_padding_and_neighbours_change_nothing() -> None:
    """TRAIN-4"""
    head = head_of(3)
    lesson = Eagle3Lesson(head, teacher_of(head), steps=2)
    short, long = Sample(random_ids(9, 1), 3), Sample(random_ids(17, 2), 5)
    with torch.no_grad():
        together = lesson.marks(batch_of([short, long]))
        alone = [lesson.marks(batch_of([one])) for one in (short, long)]
    for step in range(2):
        sizes = [len(one.ids) - max(one.prompt_tokens, step + 2) for one in (short, long)]
        expected = sum(n * each.alphas[step] for n, each in zip(sizes, alone, strict=True))
        assert together.alphas[step] == pytest.approx(expected / sum(sizes))


def test_prompts_are_read_but_not_learnt() -> None:
    head = head_of(3)
    lesson = Eagle3Lesson(head, teacher_of(head), steps=1)
    text = random_ids(12, 7)
    with torch.no_grad():
        first = lesson.marks(batch_of([Sample(text, 8)])).loss
        counted = lesson.marks(batch_of([Sample(text, 0)])).loss
    assert float(first) != pytest.approx(float(counted))
    batch = batch_of([Sample(text, 8)])
    changed = Batch(batch.ids.clone(), batch.real, batch.counts)
    changed.ids[0, 0] = (changed.ids[0, 0] + 1) % VOCAB
    with torch.no_grad():
        assert float(lesson.marks(changed).loss) != pytest.approx(float(first))


def test_what_the_drafter_cannot_say_is_not_taught() -> None:
    head = head_of(3)
    lesson = Eagle3Lesson(head, teacher_of(head), steps=1, loss="cross-entropy")
    ids = head.target_ids
    assert ids is not None
    teacher = teacher_of(head)
    batch = batch_of([Sample(random_ids(30, 5))])
    answers = teacher.answers(teacher.teach(batch).normed[0])
    unknown = ~answers.is_known
    assert unknown.any() and answers.is_known.any()
    marks = lesson.marks(batch)
    marks.loss.backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(marks.loss)
    assert 0 <= marks.alphas[0] <= 1


@pytest.mark.parametrize("loss", ["cross-entropy", "forward-kl", "total-variation", "hybrid"])
def test_learning_makes_every_step_better(loss: str) -> None:
    model = tiny_model(dtype=torch.float32, scale=3.0, num_hidden_layers=4, seed=3)
    config = default_eagle_config(model, 24)
    maps = vocabulary_maps(24, VOCAB)
    head = initial_eagle_head(config, model, maps)
    layers = config.feature_layers
    assert layers is not None
    lesson = Eagle3Lesson(head, Teacher(model, layers, head.target_ids), steps=2, loss=loss)
    batch = batch_of([Sample(random_ids(24, seed)) for seed in range(8)])
    optimizer = torch.optim.AdamW(head.parameters(), lr=3e-3)
    first = lesson.marks(batch)
    for _ in range(60):
        optimizer.zero_grad()
        marks = lesson.marks(batch)
        marks.loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    last = lesson.marks(batch)
    assert float(last.loss.detach()) < float(first.loss.detach())
    # Cross-entropy is after the likeliest token alone.
    better = "matches" if loss == "cross-entropy" else "alphas"
    for before, after in zip(getattr(first, better), getattr(last, better), strict=True):
        assert after > before


def test_an_eagle_1_head_learns_features_and_tokens() -> None:
    head = head_of(1).float()
    model = tiny_model(dtype=torch.float32, scale=3.0)
    layers = head.config.feature_layers
    assert layers is not None
    lesson = Eagle1Lesson(head, Teacher(model, layers))
    batch = batch_of([Sample(random_ids(24, seed)) for seed in range(8)])
    optimizer = torch.optim.AdamW(head.parameters(), lr=3e-3)
    head.eval()
    first = lesson.marks(batch)
    for _ in range(80):
        optimizer.zero_grad()
        lesson.marks(batch).loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    last = lesson.marks(batch)
    assert float(last.loss.detach()) < float(first.loss.detach())
    assert last.alphas[0] > first.alphas[0]


def test_a_finished_head_is_a_checkpoint_with_every_tensor() -> None:
    head = head_of(3)
    checkpoint = Eagle3Lesson(head, teacher_of(head)).finished()
    again = EagleHead.load(head.config, checkpoint.tensors)
    for name, tensor in head.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
