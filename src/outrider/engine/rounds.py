"""One round for any number of requests: propose, score, verify, commit, emit.

Plain decoding is the same round without drafters. What goes wrong with one request, in its own
options or in a pass of its own, is that request's end and nobody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from outrider.engine.choices import PLAIN, Forecast
from outrider.engine.controller import Controller, Decision
from outrider.engine.costs import PassCosts
from outrider.engine.drafting import Drafting
from outrider.engine.prefill import MOST_SHARED_ROWS, share_rows
from outrider.engine.roster import Roster
from outrider.engine.state import RequestState
from outrider.engine.stopwatch import RoundSeconds, Stopwatch
from outrider.sampling.noise import KeyedRandomness
from outrider.sampling.rows import SampledRows, draw_rows
from outrider.targets.base import Rows, ScoredRows, Target
from outrider.types import NO_DRAFT, AnyRule, Chunk, DraftTree, LossyRule
from outrider.verification import verify


@dataclass(slots=True, eq=False)
class Turn:
    """One request's part in a round."""

    state: RequestState
    share: int
    """Tokens it may have read."""
    is_piece: bool
    """Whether these are less than all, a piece of its prompt or nothing: it cannot decode yet."""
    tree: DraftTree = NO_DRAFT
    drafter: str | None = None
    """The name of the one that the tree is of; None without a draft."""
    rows: Rows | None = None
    logits: Tensor | None = None
    features: Tensor | None = None
    chunk: Chunk | None = None
    """What it emits; None as long as its prompt is not read."""
    kept: tuple[int, ...] = ()
    """Nodes whose rows stay cached."""
    error: Exception | None = None
    """What ended it, if anything did."""

    @property
    def is_long(self) -> bool:
        """Whether it has a pass to itself."""
        return self.is_piece or self.share > MOST_SHARED_ROWS


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """What a round made of its requests, why it drafted or not, and the time it took."""

    turns: tuple[Turn, ...]
    decision: Decision | None
    """None if no request had its prompt read."""
    seconds: RoundSeconds


@dataclass(slots=True, eq=False)
class _Proposal:
    decision: Decision
    modelled_s: float
    contexts: list[int] = field(default_factory=list)
    is_priced: bool = False
    """Whether the cost of such a pass was known."""


class Rounds:
    """Lets requests advance, round by round, and learns from each what rounds cost and bring."""

    def __init__(
        self,
        target: Target,
        roster: Roster,
        drafting: Drafting,
        controller: Controller,
        costs: PassCosts,
        clock: Callable[[], float],
    ) -> None:
        self.target = target
        self.clock = clock
        self._roster = roster
        self._drafting = drafting
        self._controller = controller
        self._costs = costs

    @property
    def longest_draft(self) -> int:
        """Most nodes that a request may have in a pass."""
        return max((member.longest for member in self._roster.members), default=0)

    def begin(self, state: RequestState) -> None:
        """Seat the drafters at a request."""
        self._roster.begin(state)

    def end(self, state: RequestState) -> None:
        """Let the drafters go of a request."""
        self._roster.end(state)

    def run(self, states: Sequence[RequestState], prefill_rows: int | None = None) -> Round:
        """Let requests, in the order they came, emit something or get on with their prompts.

        Of prompts that are not read yet, `prefill_rows` tokens are read at most, None for no limit.
        """
        watch = Stopwatch(self.clock)
        unread = [state.unread for state in states]
        allowed = share_rows(unread, prefill_rows)
        shares = [state.share(rows) for state, rows in zip(states, allowed, strict=True)]
        turns = [
            Turn(state, share, share < rows)
            for state, share, rows in zip(states, shares, unread, strict=True)
        ]
        had_begun = [state.has_begun for state in states]
        self._read_inputs(turns, watch)
        active = [turn for turn in _sound(turns) if not turn.is_piece]
        self._read([turn for turn in _sound(turns) if turn.is_piece], watch)
        proposal = self._propose(active, watch) if active else None
        self._score(active, watch)
        self._verify(active, watch)
        self._observe(active, watch)
        seconds = watch.stop()
        for state, is_later in zip(states, had_begun, strict=True):
            state.stats.record_seconds(seconds, is_first=not is_later)
        if proposal is not None:
            self._learn(active, proposal, seconds)
        return Round(tuple(turns), None if proposal is None else proposal.decision, seconds)

    # -- the verbs --------------------------------------------------------------------------------

    def _read_inputs(self, turns: Sequence[Turn], watch: Stopwatch) -> None:
        """Let the encoder, if there is one, read the inputs of requests that have just come."""
        for turn in turns:
            if turn.state.has_input_to_read:
                try:
                    with watch.reading:
                        watch.prefill_s += turn.state.read_input()
                except Exception as error:  # noqa: BLE001  it is the end of that request alone
                    turn.error = error

    def _read(self, turns: Sequence[Turn], watch: Stopwatch) -> None:
        """Read a piece of each prompt, in a pass of its own."""
        for turn in turns:
            if turn.share:
                turn.rows = turn.state.piece(turn.share)
                scored = self._pass([turn], watch)
                if scored is not None and _own_logits(turn, scored.logits[0]) is not None:
                    turn.state.keep_piece(scored.features[0] if scored.features else None)

    def _propose(self, turns: Sequence[Turn], watch: Stopwatch) -> _Proposal:
        states = [turn.state for turn in turns]
        contexts = [len(state.tokens) for state in states]
        is_priced = self._costs.is_known(len(states))
        with watch.drafting:
            trees, decision, modelled_s = self._drafting.propose(states, contexts)
            for turn, tree, pick in zip(turns, trees, decision.picks, strict=True):
                turn.tree, turn.rows = tree, turn.state.rows(tree)
                if pick is not None and len(tree):
                    turn.drafter = pick.offer.seat.member.name
        return _Proposal(decision, modelled_s, contexts, is_priced)

    def _score(self, turns: Sequence[Turn], watch: Stopwatch) -> None:
        """Score long prompts each by itself, and all the rest in one pass."""
        groups = [[turn] for turn in turns if turn.is_long]
        groups.append([turn for turn in turns if not turn.is_long])
        for group in groups:
            scored = self._pass(group, watch) if group else None
            if scored is not None:
                for i, turn in enumerate(group):
                    turn.logits = _own_logits(turn, scored.logits[i])
                    turn.features = scored.features[i] if scored.features else None

    def _pass(self, turns: Sequence[Turn], watch: Stopwatch) -> ScoredRows | None:
        """Let the target score turns together; what it raises is the end of all of them."""
        rows = [turn.rows for turn in turns if turn.rows is not None]
        is_prompt = turns[0].is_long
        try:
            with watch.reading if is_prompt else watch.passing:
                scored = self.target.score(rows, self._roster.layers)
        except Exception as error:  # noqa: BLE001  whoever reads the round decides what it is worth
            for turn in turns:
                turn.error = error
            return None
        if is_prompt:
            watch.prefill_s += scored.seconds
        else:
            watch.score_s += scored.seconds
        return scored

    def _verify(self, turns: Sequence[Turn], watch: Stopwatch) -> None:
        """Let each request emit what the rule accepts of its draft, and keep those rows."""
        with watch.passing:
            sampled = {turn: row for turn in _sound(turns) if (row := _sampled(turn)) is not None}
            _draw([row for turn, row in sampled.items() if _matches(turn.state.rule)])
            for turn, row in sampled.items():
                try:
                    _advance(turn, row)
                except Exception as error:  # noqa: BLE001  a request's own options may raise anything
                    turn.error = error

    def _observe(self, turns: Sequence[Turn], watch: Stopwatch) -> None:
        told = [turn for turn in _sound(turns) if turn.chunk is not None]
        with watch.drafting:
            committed = [
                [token.id for token in turn.chunk.tokens] for turn in told if turn.chunk is not None
            ]
            features = [_kept_features(turn) for turn in told if turn.features is not None]
            self._roster.observe([turn.state for turn in told], committed, features)

    # -- what is learnt ---------------------------------------------------------------------------

    def _learn(self, turns: Sequence[Turn], proposal: _Proposal, seconds: RoundSeconds) -> None:
        """Learn from a round of requests that all decode: a prompt says nothing of later passes."""
        rows = [turn.rows for turn in turns if turn.rows is not None]
        if any(len(part.pending) > 1 for part in rows) or len(_sound(turns)) < len(turns):
            return
        computed = self.target.pass_rows([1 + len(part.tree) for part in rows])
        attended = computed * sum(proposal.contexts) / len(proposal.contexts)
        # The whole of a pass counts, verification and rollback included.
        self._costs.observe(computed, attended, seconds.pass_s, len(rows))
        decision = proposal.decision
        if proposal.is_priced:
            self._account(turns, decision, seconds.decode_s)
        if decision.why != "switched off":
            tokens = [0 if turn.chunk is None else len(turn.chunk.tokens) for turn in turns]
            upkeep_s = seconds.draft_s - proposal.modelled_s
            self._controller.learn(decision, tokens, seconds.decode_s, upkeep_s)

    def _account(self, turns: Sequence[Turn], decision: Decision, seconds: float) -> None:
        for turn, pick in zip(turns, decision.picks, strict=True):
            name = PLAIN if pick is None else pick.offer.seat.member.name
            expected = 1.0 if pick is None else 1.0 + pick.tokens
            forecast = Forecast(name, expected, decision.seconds, decision.plain_s)
            emitted = 0 if turn.chunk is None else len(turn.chunk.tokens)
            turn.state.stats.record_choice(forecast, len(turn.tree), emitted, seconds)


def _sound(turns: Sequence[Turn]) -> list[Turn]:
    return [turn for turn in turns if turn.error is None]


def _own_logits(turn: Turn, logits: Tensor) -> Tensor | None:
    """Return the logits from a request's root on, those before it noted; None if that raises."""
    assert turn.rows is not None
    try:
        return turn.state.take_scores(turn.rows, logits)
    except Exception as error:  # noqa: BLE001
        turn.error = error
        return None


def _matches(rule: AnyRule) -> bool:
    """Whether a rule compares drafts with the target's own draw at every row."""
    return (rule.base if isinstance(rule, LossyRule) else rule) == "match"


def _sampled(turn: Turn) -> SampledRows | None:
    """Return what the target draws at a request's rows; None, and its end, if its options raise."""
    assert turn.logits is not None
    try:
        return turn.state.sampled(turn.logits, turn.tree)
    except Exception as error:  # noqa: BLE001
        turn.error = error
        return None


def _draw(rows: Sequence[SampledRows]) -> None:
    """Draw all rows together; where one spoils that, each is drawn when it is asked for."""
    try:
        draw_rows(rows)
    except Exception:  # noqa: BLE001  it comes up again, at the request whose fault it is
        return


def _advance(turn: Turn, row: SampledRows) -> None:
    state = turn.state
    assert turn.logits is not None
    randomness = KeyedRandomness(state.noise, len(state.tokens))
    verification = verify(state.rule, row, turn.tree, randomness)
    turn.chunk = state.advance(turn.tree, verification, turn.logits, turn.drafter)
    # The last token is the root of the next pass, whether it was drafted or not.
    turn.kept = verification.path[: len(turn.chunk.tokens) - 1]


def _kept_features(turn: Turn) -> Tensor:
    """Return the features [n, F] of a request's rows that were kept since its last round."""
    assert turn.features is not None and turn.rows is not None
    num_pending = len(turn.rows.pending)
    rows = turn.features[:num_pending]
    if turn.kept:
        rows = turn.features[[*range(num_pending), *(num_pending + node for node in turn.kept)]]
    return turn.state.all_features(rows)
