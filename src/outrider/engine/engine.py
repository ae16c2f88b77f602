"""The round loop: propose, score, verify, commit, emit, for one request or many.

Plain decoding is the same loop without a drafter. The loop is a generator; whoever stops taking
from it early leaves target, drafters and sessions as clean as one who takes everything.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal, get_args

from torch import Tensor

from outrider.drafters.base import Drafter
from outrider.engine.choices import PLAIN, Forecast
from outrider.engine.controller import Controller, Decision
from outrider.engine.costs import PassCosts
from outrider.engine.drafting import Drafting, FixedDrafting, MeasuredDrafting
from outrider.engine.request import Request, RequestState, most_tokens
from outrider.engine.roster import Roster
from outrider.engine.seat import Member
from outrider.errors import OptionError
from outrider.sampling.noise import KeyedRandomness
from outrider.sampling.rows import draw_rows
from outrider.targets.base import Rows, Target
from outrider.types import Chunk, DraftTree, Rule
from outrider.verification import verify


class Engine:
    """Decodes requests with a target, any number of drafters, and a verification rule.

    With `max_draft="auto"` a cost model decides every round whether, with which drafter and how
    far to draft. With a number, each round drafts so many tokens with the first drafter that has
    any to offer; 0 is plain decoding. `profile` is what `to_profile` of an earlier engine gave;
    `costs` are those of another engine with the same target. `clock` tells the time in seconds.
    """

    def __init__(
        self,
        target: Target,
        drafters: Drafter[Any] | Sequence[Drafter[Any]] | None = None,
        *,
        rule: Rule = "match",
        max_draft: int | Literal["auto"] = "auto",
        max_batch: int = 8,
        costs: PassCosts | None = None,
        profile: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        check_engine_options(rule, max_draft, max_batch)
        self.target = target
        self.rule: Rule = rule
        self.max_draft = max_draft
        self.max_batch = max_batch
        self.drafters = _as_tuple(drafters)
        self.costs = PassCosts() if costs is None else costs
        for drafter in self.drafters:
            if rule == "block" and drafter.drafts_trees:
                raise OptionError(
                    f"rule is 'block', which verifies chains only, but drafter {drafter.name} "
                    "draws trees; use rule 'match', 'rejection' or 'traversal'"
                )
        self._members = _members(self.drafters, target, max_draft)
        if profile is not None:
            self._load(profile, keep_costs=costs is not None)
        self._clock = clock
        asked = self._members if max_draft else []
        self._roster = Roster(asked, rule, target.vocab_size, clock)
        target.prepare(self._roster.layers)
        self._controller = Controller(self.costs, target.pass_rows, asked)
        kind = MeasuredDrafting if max_draft == "auto" else FixedDrafting
        self._drafting: Drafting = kind(self._roster, self._controller)

    @property
    def drafter(self) -> Drafter[Any] | None:
        """The first drafter, None without any."""
        return self.drafters[0] if self.drafters else None

    # -- what is learnt ---------------------------------------------------------------------------

    def to_profile(self) -> dict[str, Any]:
        """Return what was learnt of the target's and the drafters' costs, and of acceptance.

        Plain values, ready for JSON; drafters go by their names, the second of a name by "name 2".
        """
        return {
            "pass": self.costs.to_dict(),
            "drafters": {member.name: member.to_dict() for member in self._members},
        }

    def _load(self, profile: Mapping[str, Any], *, keep_costs: bool) -> None:
        try:
            if not keep_costs:
                self.costs = PassCosts.from_dict(profile["pass"])
            for member in self._members:
                record = profile["drafters"].get(member.name)
                if record is not None:
                    member.recall(record)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise OptionError(
                f"profile is not what an engine's to_profile gives: {reason}"
            ) from error

    # -- decoding ---------------------------------------------------------------------------------

    def require_room(self, requests: Sequence[Request]) -> None:
        """Raise OptionError, with the numbers, for requests whose caches do not fit in memory."""
        sequences = min(len(requests), self.max_batch)
        tokens = max((most_tokens(request, self.target) for request in requests), default=0)
        rows = sequences * (1 + max((member.longest for member in self._roster.members), default=0))
        self.target.require_room(sequences, tokens, rows)

    def run(
        self, requests: Iterable[Request]
    ) -> Generator[tuple[int, Chunk, RequestState], None, None]:
        """Decode all requests, at most `max_batch` at a time; yield what each round adds.

        Yields (index of the request, chunk, its state). A request that ends makes room for the
        next at once. Raises PromptError for a prompt that cannot be decoded from, and
        NumericsError for logits that are no numbers.
        """
        waiting = deque(enumerate(requests))
        active: dict[int, RequestState] = {}
        try:
            while waiting or active:
                while waiting and len(active) < self.max_batch:
                    index, request = waiting.popleft()
                    active[index] = RequestState(request, self.target)
                    self._roster.begin(active[index])
                chunks = self._round(list(active.values()))
                for (index, state), chunk in zip(list(active.items()), chunks, strict=True):
                    if state.finish_reason is not None:
                        self._end(active.pop(index))
                    yield index, chunk, state
        finally:
            with ExitStack() as stack:  # each request ends, whatever the end of another raises
                for state in active.values():
                    stack.callback(self._end, state)

    def _end(self, state: RequestState) -> None:
        state.close()
        self._roster.end(state)

    def _round(self, states: Sequence[RequestState]) -> list[Chunk]:
        started = self._clock()
        is_priced = self.costs.is_known(len(states))
        contexts = [len(state.tokens) for state in states]
        trees, decision, modelled_s = self._drafting.propose(states, contexts)
        rows = [state.rows(tree) for state, tree in zip(states, trees, strict=True)]
        drafted = self._clock()
        scored = self.target.score(rows, self._roster.layers)
        chunks, paths = self._verify(states, trees, scored.logits)
        verified = self._clock()
        features = [
            _kept(states_of_rows, len(part.pending), path)
            for states_of_rows, part, path in zip(scored.features, rows, paths, strict=False)
        ]
        committed = [[token.id for token in chunk.tokens] for chunk in chunks]
        self._roster.observe(states, committed, features)
        observed = self._clock()
        draft_s = (drafted - started) + (observed - verified)
        for state in states:
            is_first = state.stats.rounds == 1
            state.stats.draft_s += draft_s
            state.stats.prefill_s += scored.seconds if is_first else 0.0
            state.stats.score_s += 0.0 if is_first else scored.seconds
            state.stats.host_s += observed - started - draft_s - scored.seconds
        if all(len(part.pending) == 1 for part in rows):  # a prompt says nothing of later passes
            self._learn(rows, contexts, verified - drafted)
            if is_priced:
                self._account(states, chunks, decision, trees, observed - started)
            self._controller.learn(
                decision,
                sum(len(chunk.tokens) for chunk in chunks),
                observed - started,
                draft_s - modelled_s,
            )
        return chunks

    def _verify(
        self, states: Sequence[RequestState], trees: Sequence[DraftTree], logits: Sequence[Any]
    ) -> tuple[list[Chunk], list[tuple[int, ...]]]:
        """Let each request advance; returns what it emits, and the nodes that stay cached."""
        rows = [
            state.sampled(part, tree)
            for state, part, tree in zip(states, logits, trees, strict=True)
        ]
        if self.rule == "match":
            draw_rows(rows)
        chunks, paths = [], []
        for state, tree, row, part in zip(states, trees, rows, logits, strict=True):
            randomness = KeyedRandomness(state.noise, len(state.tokens))
            verification = verify(self.rule, row, tree, randomness)
            chunks.append(state.advance(tree, verification, part))
            # The last token is the root of the next pass, whether it was drafted or not.
            paths.append(verification.path[: len(chunks[-1].tokens) - 1])
        return chunks, paths

    def _learn(self, rows: Sequence[Rows], contexts: Sequence[int], seconds: float) -> None:
        """Let the cost model learn from the whole of a pass, verification and rollback included."""
        computed = self.target.pass_rows([1 + len(part.tree) for part in rows])
        attended = computed * sum(contexts) / len(contexts)
        self.costs.observe(computed, attended, seconds, len(rows))

    def _account(
        self,
        states: Sequence[RequestState],
        chunks: Sequence[Chunk],
        decision: Decision,
        trees: Sequence[DraftTree],
        seconds: float,
    ) -> None:
        for state, chunk, pick, tree in zip(states, chunks, decision.picks, trees, strict=True):
            name = PLAIN if pick is None else pick.offer.seat.member.name
            expected = 1.0 if pick is None else 1.0 + pick.tokens
            forecast = Forecast(name, expected, decision.seconds, decision.plain_s)
            state.stats.record_choice(forecast, len(tree), len(chunk.tokens), seconds)


def _kept(features: Tensor, num_pending: int, path: Sequence[int]) -> Tensor:
    """Return the features [n, F] of the rows of a pass that were kept."""
    if not path:
        return features[:num_pending]
    return features[[*range(num_pending), *(num_pending + node for node in path)]]


def check_engine_options(rule: Rule, max_draft: int | Literal["auto"], max_batch: int) -> None:
    """Raise OptionError for a rule that does not exist, or a limit out of its range."""
    if rule not in get_args(Rule):
        raise OptionError(f"rule is {rule!r}; it must be one of {', '.join(get_args(Rule))}")
    if max_draft != "auto" and not _is_count(max_draft, least=0):
        raise OptionError(
            f"max_draft is {max_draft!r}; it must be 'auto' or an integer of at least 0"
        )
    if not _is_count(max_batch, least=1):
        raise OptionError(f"max_batch is {max_batch!r}; it must be an integer of at least 1")


def _is_count(value: object, *, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _as_tuple(
    drafters: Drafter[Any] | Sequence[Drafter[Any]] | None,
) -> tuple[Drafter[Any], ...]:
    if drafters is None:
        return ()
    found = (drafters,) if isinstance(drafters, Drafter) else tuple(drafters)
    for drafter in found:
        if not isinstance(drafter, Drafter):
            raise OptionError(f"drafters holds {drafter!r}; each must be a Drafter")
    if len({id(drafter) for drafter in found}) < len(found):
        raise OptionError("drafters holds the same drafter twice; each must be one of its own")
    return found


def _members(
    drafters: Sequence[Drafter[Any]], target: Target, max_draft: int | Literal["auto"]
) -> list[Member]:
    names = [drafter.name for drafter in drafters]
    members = []
    for place, drafter in enumerate(drafters):
        earlier = names[:place].count(drafter.name)
        name = f"{drafter.name} {earlier + 1}" if earlier else drafter.name
        longest = drafter.default_max_draft if max_draft == "auto" else max_draft
        if max_draft == "auto" and target.preferred_rows is not None:
            longest = min(longest, target.preferred_rows - 1)
        members.append(Member(drafter, name, longest))
    return members
