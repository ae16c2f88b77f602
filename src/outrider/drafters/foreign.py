"""A smaller language model with a tokenizer of its own as the drafter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from outrider.drafters.base import Drafter, DraftRequest, DraftSampler
from outrider.drafters.foreign_drafts import (
    ForeignDraft,
    SharedIds,
    SharedTokensDraft,
    TextDraft,
)
from outrider.drafters.plain_encoder import PlainEncoder
from outrider.drafters.retokenizer import WINDOW, Retokenizer
from outrider.drafters.spec import Way
from outrider.drafters.transcript import Scribe, Transcript
from outrider.drafters.translation import Translation
from outrider.drafters.way_choice import WayChoice
from outrider.targets.base import Rows, Target
from outrider.types import DraftTree, TokenIds

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_SPARE = 1.25  # what an answer may take in ids of the draft model beyond what its prompt suggests


@dataclass(frozen=True, slots=True)
class _Made:
    """A draft that waits to be compared with what is committed."""

    way: Way
    tree: DraftTree
    passes: int


@dataclass(slots=True)
class ForeignState:
    """One request's text in the draft model's ids, and how its cache stands to it."""

    sequence: int
    room: int
    """The tokens that the sequence was opened for."""
    sampler: DraftSampler
    transcript: Transcript
    position: int
    """How many tokens are committed, in the target's ids."""
    recent: list[int] = field(default_factory=list)
    """The last of them, since the last special one."""
    settled: int = 0
    cached: list[int] = field(default_factory=list)
    """The ids in the cache, from those on that were settled when they were read."""
    made: _Made | None = None

    @property
    def kind(self) -> tuple[bool, bool]:
        """What it depends on, besides the text, how a way of drafting fares."""
        return self.sampler.is_greedy, self.sampler.has_laws


class ForeignDrafter(Drafter[ForeignState]):
    """Drafts chains with a causal language model whose token ids are not the target's.

    It reads the text as its own tokenizer cuts it, and drafts in one of two ways: with tokens that
    both vocabularies have, or whole text that the target's tokenizer cuts. Where both are open to
    it, it takes the one that has brought more. Neither changes what is emitted.

    The cache is exact after every round: what the text to come has changed of its last ids is
    read again.
    """

    name = "model"
    default_max_draft = 12

    def __init__(
        self,
        model: Target,
        translation: Translation,
        tokenizers: tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase],
        *,
        vocab_size: int,
        way: Way | None = None,
    ) -> None:
        """Draft with `model` for a target of `vocab_size` ids.

        `tokenizers` are the target's and the draft model's, of which `translation` is; `way` is
        the one way to draft, None the better one. Raises OptionError for a way that is not open.
        """
        target_tokenizer, draft_tokenizer = tokenizers
        encoder, target_encoder = PlainEncoder(draft_tokenizer), PlainEncoder(target_tokenizer)
        self._model = model
        self._choice = WayChoice(translation.ways(way))
        pairs = sorted({*translation.shared, *translation.special})
        self._shared = SharedIds.of(pairs, model.device)
        self._spelling = translation.draft
        self._endings = {theirs: ours for ours, theirs in translation.special}
        self._retokenizer = Retokenizer(translation.target, target_encoder, vocab_size)
        self._scribe = Scribe(
            spelling=translation.target,
            special=dict(translation.special),
            byte_ids={
                byte: one
                for byte, one in translation.draft.byte_ids.items()
                if one < model.vocab_size
            },
            encoder=encoder,
            num_ids=model.vocab_size,
            target_encoder=target_encoder,
        )

    @property
    def ways(self) -> tuple[Way, ...]:
        """The ways of drafting that are open to it."""
        return self._choice.ways

    def begin(self, request: DraftRequest) -> ForeignState:
        transcript = Transcript(self._scribe)
        transcript.extend(request.prompt_ids)
        position = len(request.prompt_ids)
        room = self._room_for(transcript.length, request.max_tokens / position)
        state = ForeignState(self._model.open(room), room, request.sampler, transcript, position)
        self._remember(state, request.prompt_ids)
        return state

    def propose(self, states: Sequence[ForeignState], budgets: Sequence[int]) -> list[DraftTree]:
        ways = [self._choice.choose(state.kind) for state in states]
        drafts = [
            self._draft(state, way, min(budget, self._left(state)))
            for state, way, budget in zip(states, ways, budgets, strict=True)
        ]
        while active := [i for i, draft in enumerate(drafts) if not draft.is_over]:
            logits = self._read([(states[i], drafts[i].read) for i in active])
            for i, row in zip(active, logits, strict=True):
                drafts[i].add(row)
        trees = [draft.tree() for draft in drafts]
        for state, way, draft, tree in zip(states, ways, drafts, trees, strict=True):
            state.made = _Made(way, tree, draft.passes) if draft.passes else None
        return trees

    def observe(
        self,
        states: Sequence[ForeignState],
        committed: Sequence[TokenIds],
        features: Sequence[Tensor] = (),
    ) -> None:
        for state, tokens in zip(states, committed, strict=True):
            self._learn(state, tokens)
            state.transcript.extend(tokens)
            state.position += len(tokens)
            self._remember(state, tokens)

    def end(self, state: ForeignState) -> None:
        self._model.close(state.sequence)

    # -- one draft ------------------------------------------------------------------------------

    def _draft(self, state: ForeignState, way: Way, budget: int) -> ForeignDraft:
        if way == "tokens":
            return SharedTokensDraft(budget, state.sampler, state.position, self._shared)
        return TextDraft(budget, state.recent, self._retokenizer, self._spelling, self._endings)

    def _left(self, state: ForeignState) -> int:
        """Return how many tokens may be drafted before the draft model's context is full."""
        if not state.transcript.can_go_on:
            return 0
        return self._model.max_positions - state.transcript.length

    def _learn(self, state: ForeignState, tokens: TokenIds) -> None:
        """Compare a draft with what came of it."""
        made, state.made = state.made, None
        if made is None or not tokens:
            return
        drafted = made.tree.tokens
        pairs = zip(drafted, tokens, strict=False)
        accepted = next(
            (i for i, (ours, theirs) in enumerate(pairs) if ours != theirs),
            min(len(drafted), len(tokens)),
        )
        self._choice.learn(
            state.kind,
            made.way,
            passes=made.passes,
            drafted=len(drafted),
            accepted=accepted,
            refuted=not drafted or accepted < min(len(drafted), len(tokens)),
        )

    def _remember(self, state: ForeignState, tokens: TokenIds) -> None:
        spelling = self._scribe.spelling
        for token in tokens[-WINDOW:]:
            if spelling.of(token) is None:
                state.recent.clear()
            else:
                state.recent.append(token)
        del state.recent[:-WINDOW]

    # -- the cache ------------------------------------------------------------------------------

    def _read(self, wanted: Sequence[tuple[ForeignState, list[int]]]) -> list[Tensor]:
        """Return what the model says [1, D] after each text and what was drafted behind it."""
        rows = [self._rows(state, drafted) for state, drafted in wanted]
        logits = self._model.score(rows).logits
        for state, _ in wanted:
            self._model.commit(state.sequence, ())
        return list(logits)

    def _rows(self, state: ForeignState, drafted: list[int]) -> Rows:
        """Return what is to be read of a text that is not cached as it is now."""
        length = state.transcript.length + len(drafted)
        self._require_room(state, length)
        if state.settled == length:  # its last id has to be read again
            state.settled -= 1
            state.cached = state.transcript.since(state.settled) + state.cached
        ids = state.transcript.since(state.settled) + drafted
        # The last one is always read: what comes after it is asked for.
        same = _common(state.cached, ids[:-1])
        if same < len(state.cached):
            self._model.crop(state.sequence, state.settled + same)
        state.cached = ids[state.transcript.settled - state.settled :]
        unread, state.settled = ids[same:], state.transcript.settled
        return Rows(state.sequence, tuple(unread))

    def _require_room(self, state: ForeignState, length: int) -> None:
        """Open a longer sequence for a text that takes more ids than was foreseen."""
        if length <= state.room:
            return
        self._model.close(state.sequence)
        state.room = self._room_for(length, 2)
        state.sequence = self._model.open(state.room)
        state.settled, state.cached = 0, []

    def _room_for(self, length: int, growth: float) -> int:
        """Return the ids to make room for where a text of so many may grow so many times longer."""
        foreseen = math.ceil(_SPARE * growth * length) + self.default_max_draft
        return min(foreseen, self._model.max_positions)


def _common(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Return how many ids two texts begin with in common."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    shorter = min(len(ours), len(theirs))
    return next((i for i, (one, other) in pairs if one != other), shorter)
