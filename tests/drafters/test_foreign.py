"""A draft model with a tokenizer of its own changes how fast the text comes, and never the text."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerBase

import outrider
from outrider.drafters.base import DraftRequest
from outrider.drafters.foreign import ForeignDrafter
from outrider.drafters.foreign_drafts import SharedIds, SharedTokensDraft
from outrider.drafters.model import ModelDrafter
from outrider.drafters.spec import Way
from outrider.drafters.translation import translate
from outrider.engine.engine import Engine
from outrider.errors import OptionError
from outrider.proof.enumeration import Choices, enumerate_round, exact_array, law_difference
from outrider.sampling.noise import KeyedNoise
from outrider.sampling.sampler import KeyedDraftSampler
from outrider.targets.transformers import TransformersTarget
from outrider.types import DraftTree, Rule
from outrider.verification import verify_block, verify_rejection, verify_traversal
from support.drafts import draft_of, save_draft
from support.files import save_tiny_model
from support.laws import ALARM, NEAR_LOGITS, TARGET_LOGITS, VOCABULARY, chi_square_excess
from support.runs import assert_same, collect, decode, make_request
from support.scripted import ScriptedTarget
from support.tiny import shared_model, tiny_model
from support.vocabularies import STRANGE, TEXT, Kind, drafter_between, speaker, vocabulary, wrapped

PAIRS: list[tuple[Kind, Kind]] = [
    ("bytes", "other bytes"),
    ("bytes", "llama"),
    ("llama", "bytes"),
    ("bytes", "unigram"),
    ("unigram", "llama"),
    ("bytes", "sentencepiece"),
    ("sentencepiece", "llama"),
    ("llama", "wordpiece"),
    ("wordpiece", "other bytes"),
]
WAYS: list[Way] = ["tokens", "text"]
STORY = f"{TEXT} {TEXT}{STRANGE} {TEXT}"


@functools.cache
def random_model(kind: Kind, seed: int = 1) -> TransformersTarget:
    """Return a random model in float64: it says special tokens and broken characters as well."""
    sizes: dict[str, Any] = {"vocab_size": len(vocabulary(kind)), "num_hidden_layers": 1}
    return TransformersTarget(tiny_model(seed=seed, max_position_embeddings=512, **sizes))


def prompt_of(kind: Kind, text: str) -> tuple[int, ...]:
    return tuple(vocabulary(kind).encode(text))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("target", "draft"), PAIRS)
def test_a_draft_model_of_any_tokenizer_leaves_the_text_as_it_is(
    target: Kind, draft: Kind, way: Way, temperature: float
) -> None:
    """Texts that are no language at all: special tokens, unknown text, halves of characters."""
    drafter = drafter_between(target, draft, random_model(draft, 2), way)
    model = random_model(target)
    wanted = [
        make_request(
            prompt_of(target, text), temperature=temperature, seed=i, max_new_tokens=12 + i
        )
        for i, text in enumerate(["The lazy", f"x{STRANGE}", "犬は ﬁx ①\t"])
    ]
    results = collect(Engine(model, drafter, max_draft=3, max_batch=3), wanted)
    for request, found in zip(wanted, results, strict=True):
        assert found.stats.drafter_error is None
        assert_same(found, decode(model, request))
    assert sum(found.stats.proposed for found in results) > 0
    assert not drafter._model._sequences  # type: ignore[attr-defined]


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal"])
@pytest.mark.parametrize("way", WAYS)
def test_every_rule_takes_its_drafts(way: Way, rule: Rule) -> None:
    drafter = drafter_between("bytes", "llama", random_model("llama", 2), way)
    for temperature in (0.0, 1.0):
        request = make_request(
            prompt_of("bytes", "The"), temperature=temperature, max_new_tokens=12, top_k=20
        )
        found = decode(random_model("bytes"), request, drafter, rule=rule)
        assert found.stats.drafter_error is None and found.stats.proposed > 0
        if temperature == 0:
            assert_same(found, decode(random_model("bytes"), request))


@pytest.mark.parametrize("way", [*WAYS, None])
@pytest.mark.parametrize(
    ("target", "draft"), [p for p in PAIRS if not {"wordpiece", "unigram", "sentencepiece"} & {*p}]
)
def test_drafts_are_taken_where_both_models_say_the_same(
    target: Kind, draft: Kind, way: Way | None
) -> None:
    """Both go on with one text, each in its own tokens: text passes nearly whole, shared tokens
    as far as there are any, and the better of the two is found out."""
    model = speaker(target, STORY)
    drafter = drafter_between(target, draft, speaker(draft, STORY), way)
    request = make_request(
        prompt_of(target, "The lazy fox"), max_new_tokens=150, eos=[ending(target)]
    )
    found = decode(model, request, drafter, max_draft=6)
    assert_same(found, decode(model, request))
    assert found.finish_reason == "stop"
    assert found.stats.drafter_error is None
    assert found.stats.acceptance_rate is not None
    assert found.stats.acceptance_rate > {"text": 0.8, "tokens": 0.2, None: 0.7}[way]


def ending(kind: Kind) -> int:
    token_id = vocabulary(kind).eos_token_id
    assert isinstance(token_id, int)
    return token_id


def test_shared_tokens_are_drawn_with_the_targets_own_noise() -> None:
    """A model that says the same by other ids is always right under `match`, at any temperature."""
    pair = letters("a", "b", "c", "d"), letters("d", "b", "a", "c")
    translation = translate(*pair, VOCABULARY, VOCABULARY)
    ours = {theirs: one for one, theirs in translation.shared}

    def said(context: tuple[int, ...]) -> list[float]:
        row = TARGET_LOGITS(tuple(ours[token] for token in context))
        return [row[ours[token]] for token in range(VOCABULARY)]

    model = ScriptedTarget(said, VOCABULARY)
    drafter = ForeignDrafter(model, translation, pair, vocab_size=VOCABULARY, way="tokens")
    request = make_request((1, 2, 0), temperature=1.0, seed=5, max_new_tokens=60)
    found = decode(ScriptedTarget(TARGET_LOGITS, VOCABULARY), request, drafter, max_draft=5)
    assert found.stats.acceptance_rate == 1


def test_what_stands_before_a_special_token_has_no_say_in_how_a_draft_is_cut() -> None:
    drafter = drafter_between("bytes", "llama", speaker("llama", TEXT), "text")
    turn = vocabulary("bytes").get_vocab()["<|turn|>"]
    the, dog = prompt_of("bytes", "The lazy"), prompt_of("bytes", " dog")
    state = begin(drafter, (*the, turn, *dog))
    assert state.recent == list(dog)
    drafter.observe([state], [[*the, turn]])
    assert state.recent == []


@pytest.mark.parametrize("way", WAYS)
def test_the_end_of_the_text_is_drafted_as_the_target_writes_it(way: Way) -> None:
    text = "The lazy fox"
    drafter = drafter_between("bytes", "unigram", speaker("unigram", text), way)
    state = begin(drafter, prompt_of("bytes", text))
    (tree,) = drafter.propose([state], [3])
    assert tree.tokens[0] == ending("bytes")


def begin(
    drafter: ForeignDrafter, prompt: Sequence[int], most: int = 200, temperature: float = 0.0
) -> Any:
    sampler = KeyedDraftSampler(
        temperature, KeyedNoise(3), "match", vocab_size=drafter._retokenizer.num_ids
    )
    return drafter.begin(DraftRequest(tuple(prompt), most, sampler))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("target", "draft"), PAIRS)
def test_the_cache_holds_the_text_and_nothing_that_was_rejected(
    target: Kind, draft: Kind, way: Way
) -> None:
    """After any committed tokens a draft is that of a drafter which has just begun with them."""
    drafter = drafter_between(target, draft, random_model(draft, 2), way)
    text = vocabulary(target).encode(f"{TEXT}{STRANGE} {TEXT}", add_special_tokens=False)
    state, place = begin(drafter, text[:3]), 3
    for count in (1, 3, 7, 1, 12, 40, 1, 1):
        (tree,) = drafter.propose([state], [3])
        fresh = begin(drafter, text[:place])
        assert state.transcript.since(0) == fresh.transcript.since(0)
        assert drafter.propose([fresh], [3])[0].tokens == tree.tokens
        drafter.end(fresh)
        drafter.observe([state], [text[place : place + count]])
        place = min(len(text), place + count)
    drafter.end(state)


def test_what_was_drafted_and_came_true_is_not_read_again() -> None:
    model = speaker("other bytes", STORY)
    drafter = drafter_between("bytes", "other bytes", model, "text")
    request = make_request(prompt_of("bytes", "The lazy fox"), max_new_tokens=60)
    decode(speaker("bytes", STORY), request, drafter, max_draft=4)
    read = [len(part.pending) for rows in model.passes[1:] for part in rows]
    drafted = len(read)
    assert sum(read) < 1.6 * drafted  # a row for each pass, and few more


def test_a_text_that_takes_more_ids_than_foreseen_gets_a_longer_sequence() -> None:
    """VOCAB-7: a token of the target's becomes many of the draft model's."""
    opened: list[int] = []

    class Counting(ScriptedTarget):
        def open(self, max_tokens: int) -> int:
            opened.append(max_tokens)
            return super().open(max_tokens)

    like = speaker("other bytes", STORY)
    model = Counting(like._logits, like.vocab_size)
    drafter = drafter_between("bytes", "other bytes", model, "text")
    spelled = drafter._scribe.spelling.ids.items()
    cut = drafter._scribe.encoder.encode
    texts = [(word.decode(errors="ignore"), token) for word, token in spelled]
    most = max(texts, key=lambda one: len(cut(one[0]).ids))[1]
    state = begin(drafter, prompt_of("bytes", "The"), most=12)
    drafter.propose([state], [2])
    for _ in range(12):
        drafter.observe([state], [[most]])
        drafter.propose([state], [2])
    assert len(opened) > 1
    assert opened == sorted(opened)
    assert max(opened) >= state.transcript.length
    drafter.end(state)
    assert not model.held


def test_where_the_draft_models_context_ends_it_rests() -> None:
    drafter = drafter_between("bytes", "llama", speaker("llama", STORY, max_positions=24))
    request = make_request(prompt_of("bytes", "The lazy fox"), max_new_tokens=60)
    found = decode(speaker("bytes", STORY), request, drafter, max_draft=4)
    assert_same(found, decode(speaker("bytes", STORY), request))
    assert found.stats.drafter_error is None
    assert 0 < found.stats.proposed < 40


def test_without_single_bytes_a_draft_model_waits_for_whole_characters() -> None:
    drafter = drafter_between("bytes", "unigram", speaker("unigram", TEXT), "text")
    whole = prompt_of("bytes", "The 🦊")
    states = [begin(drafter, whole[:-1]), begin(drafter, whole)]
    trees = drafter.propose(states, [3, 3])
    assert not states[0].transcript.can_go_on and not trees[0].tokens
    assert states[1].transcript.can_go_on


@pytest.mark.parametrize("way", WAYS)
def test_the_users_draft_model_and_tokenizers_are_left_as_they_are(way: Way) -> None:
    """VOCAB-4, VOCAB-5: two draft models of one vocabulary, in turn, share nothing."""
    model: Any = tiny_model(seed=3, vocab_size=len(vocabulary("llama")))
    other: Any = tiny_model(
        seed=4, vocab_size=len(vocabulary("llama")), hidden_size=48, head_dim=12
    )
    kinds: list[Kind] = ["bytes", "llama"]
    ids = torch.tensor([[3, 4, 5]])
    before = model(input_ids=ids).logits
    written = [vocabulary(kind).backend_tokenizer.to_str() for kind in kinds]
    names, settings = list(model.state_dict()), model.generation_config.to_dict()
    request = make_request(prompt_of("bytes", "The fox"), max_new_tokens=12)
    found = []
    for one in (model, other, model, other):
        drafter = drafter_between("bytes", "llama", TransformersTarget(one), way)
        found.append(decode(random_model("bytes"), request, drafter).stats.proposed_at)
    assert found[:2] == found[2:]
    assert torch.equal(model(input_ids=ids).logits, before)
    assert (list(model.state_dict()), model.generation_config.to_dict()) == (names, settings)
    assert [vocabulary(kind).backend_tokenizer.to_str() for kind in kinds] == written


# -- the law of shared tokens -------------------------------------------------------------------

P = (Fraction(5, 10), Fraction(3, 10), Fraction(2, 10))  # of a, b, c
Q = (0.2, 0.3, 0.5)  # of a, b, d
SHARED = SharedIds.of([(0, 0), (1, 1)], torch.device("cpu"))


def shared_draft(length: int = 1) -> DraftTree:
    sampler = KeyedDraftSampler(1.0, KeyedNoise(1), "rejection", vocab_size=3)
    draft = SharedTokensDraft(length, sampler, 0, SHARED)
    while not draft.is_over:
        draft.add(torch.tensor([Q], dtype=torch.float64).log())
    return draft.tree()


def test_shared_tokens_are_drawn_from_the_draft_models_law_over_them() -> None:
    """VOCAB-6."""
    tree = shared_draft(2)
    assert tree.q is not None
    torch.testing.assert_close(tree.q, torch.tensor([[0.4, 0.6, 0.0]] * 2, dtype=torch.float64))
    drawn = [
        SharedTokensDraft(
            1, KeyedDraftSampler(1.0, KeyedNoise(seed), "rejection", vocab_size=3), 0, SHARED
        )
        for seed in range(600)
    ]
    for draft in drawn:
        draft.add(torch.tensor([Q], dtype=torch.float64).log())
    counts = [sum(draft.tree().tokens == (token,) for draft in drawn) for token in range(3)]
    assert counts[2] == 0
    assert abs(counts[0] / 600 - 0.4) < 4 * (0.24 / 600) ** 0.5


@pytest.mark.parametrize("rule", [verify_rejection, verify_block, verify_traversal])
@pytest.mark.parametrize("length", [1, 2])
def test_the_law_of_what_is_emitted_is_the_targets_exactly(rule: Any, length: int) -> None:
    """VOCAB-6, all draws and decisions enumerated in fractions."""
    q = shared_draft().q
    assert q is not None
    law = [Fraction(entry).limit_denominator(1000) for entry in q[0].tolist()]
    assert law == [Fraction(2, 5), Fraction(3, 5), 0]

    def drafting(choices: Choices, false: bool = False) -> DraftTree:
        tokens = [choices.choose(law) for _ in range(length)]
        said: Any = exact_array([[*Q_EXACT] if false else law] * length)
        return DraftTree(tuple(tokens), tuple(range(-1, length - 1)), said)

    found = enumerate_round(rule, lambda _: P, drafting, length + 1)
    exact = {
        text: functools.reduce(lambda x, y: x * y, (P[token] for token in text))
        for text in product(range(3), repeat=length + 1)
    }
    assert law_difference(found.law, exact) is None
    if length == 1:
        assert found.accepted == Fraction(7, 10)
    wrong = enumerate_round(rule, lambda _: P, lambda c: drafting(c, True), length + 1)
    assert law_difference(wrong.law, exact) is not None


Q_EXACT = (Fraction(2, 10), Fraction(3, 10), Fraction(5, 10))
"""What was not drawn from: the draft model's law over all its tokens, of which the last is no
token of the target's."""


def letters(*names: str) -> PreTrainedTokenizerBase:
    """Return a tokenizer of so many letters, one a token; others it leaves out."""
    backend = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    backend.pre_tokenizer, backend.decoder = ByteLevel(False), decoders.ByteLevel()
    return wrapped(backend)


def lettered(way: Way = "tokens") -> ForeignDrafter:
    """Return a drafter for four letters whose model knows three of them, by other ids."""
    pair = letters("a", "b", "c", "d"), letters("d", "b", "x", "a")
    model = ScriptedTarget(lambda context: NEAR_LOGITS((0, 0, *context)), VOCABULARY)
    translation = translate(*pair, VOCABULARY, VOCABULARY)
    assert translation.shared == ((0, 3), (1, 1), (3, 0))
    return ForeignDrafter(model, translation, pair, vocab_size=VOCABULARY, way=way)


@pytest.mark.parametrize(
    ("rule", "way"),
    [("rejection", "tokens"), ("block", "tokens"), ("traversal", "tokens"), ("rejection", "text")],
)
def test_sampled_text_has_the_law_of_the_target(rule: Rule, way: Way) -> None:
    assert abs(chi_square_excess(rule, lettered(way))) < ALARM


def test_the_law_check_notices_ids_that_are_taken_for_others() -> None:
    drafter = lettered()
    propose = drafter.propose

    def mislabelled(states: Sequence[Any], budgets: Sequence[int]) -> list[DraftTree]:
        return [
            replace(tree, q=None if tree.q is None else tree.q[:, [1, 0, 2, 3]])
            for tree in propose(states, budgets)
        ]

    drafter.propose = mislabelled  # type: ignore[method-assign]
    assert chi_square_excess("rejection", drafter) > 5 * ALARM


# -- from a folder ------------------------------------------------------------------------------


def save(folder: Path, kind: Kind, **options: Any) -> Path:
    save_tiny_model(folder, tokenizer=False, vocab_size=len(vocabulary(kind)), **options)
    vocabulary(kind).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("way", ["", "?way=tokens", "?way=text"])
def test_a_folder_of_another_tokenizer_is_a_drafter_by_the_spec_of_a_model(
    way: str, tmp_path: Path
) -> None:
    target, draft = save(tmp_path / "target", "bytes"), save(tmp_path / "draft", "llama")
    decoder = outrider.load(
        str(target), drafter=f"model:{draft}{way}", dtype=torch.float64, profile=False, max_draft=3
    )
    (drafter,) = decoder.engine.drafters
    assert isinstance(drafter, ForeignDrafter)
    assert drafter.ways == ((way.partition("=")[2],) if way else ("tokens", "text"))
    assert list(decoder.specs.values()) == [f"model:{draft}{way}"]
    with decoder.session() as session:
        first = decoder.generate(TEXT, max_new_tokens=8, temperature=1.0, seed=4, session=session)
        prompt = (*decoder.encode(TEXT), *first.token_ids, 5, 6)
        second = decoder.generate(prompt, max_new_tokens=8, temperature=0, session=session)
    plain = decoder.without_drafter()
    assert_same(first, plain.generate(TEXT, max_new_tokens=8, temperature=1.0, seed=4))
    assert_same(second, plain.generate(prompt, max_new_tokens=8, temperature=0))
    assert first.stats.proposed + second.stats.proposed > 0
    assert first.stats.drafter_error is second.stats.drafter_error is None


def test_the_same_ids_are_translated_only_where_a_way_is_named(tmp_path: Path) -> None:
    folder = save(tmp_path / "target", "bytes")
    kinds = [
        type(outrider.load(str(folder), drafter=f"model:{folder}{way}").engine.drafters[0])
        for way in ("", "?way=text")
    ]
    assert kinds == [ModelDrafter, ForeignDrafter]


def test_a_way_that_cannot_be_had_is_refused(tmp_path: Path) -> None:
    words, letters_only = save_tiny_model(tmp_path / "words"), save(tmp_path / "draft", "unigram")
    with pytest.raises(OptionError, match=r"way is 'tokens', but its vocabulary .* no token in"):
        outrider.load(str(words), drafter=f"model:{letters_only}?way=tokens")
    own = save_draft(tmp_path / "own", draft_of(shared_model()))
    with pytest.raises(OptionError, match="names a way to draft, but shares the target's embedd"):
        outrider.load(shared_model(), drafter=f"{own}?way=text")
