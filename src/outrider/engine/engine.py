"""A target, its drafters and a rule, and what they have learnt of each other.

How requests get on is the business of rounds (`rounds.py`), and which of them run is that of a
scheduler (`scheduler.py`): one of its own for each batch, or one for the life of a server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, Literal, get_args

from outrider.drafters.base import Drafter
from outrider.engine.controller import Controller
from outrider.engine.costs import PassCosts
from outrider.engine.drafting import Drafting, FixedDrafting, MeasuredDrafting
from outrider.engine.events import Emitted, Failed
from outrider.engine.options import SchedulerOptions, require_count
from outrider.engine.request import Request, check_request, most_read, most_tokens
from outrider.engine.roster import Roster
from outrider.engine.rounds import Rounds
from outrider.engine.scheduler import Scheduler
from outrider.engine.seat import Member
from outrider.engine.state import RequestState
from outrider.errors import OptionError
from outrider.targets.base import Target
from outrider.types import Chunk, LossyRule, Rule


class Engine:
    """Decodes requests with a target, any number of drafters, and a verification rule.

    With `max_draft="auto"` a cost model decides every round whether, with which drafter and how
    far to draft. With a number, each round drafts so many tokens with the first drafter that has
    any to offer; 0 is plain decoding. `profile` is what `to_profile` of an earlier engine gave;
    `costs` are those of another engine with the same target. `clock` tells the time in seconds.
    `lossy`, where it is given, verifies in place of the rule.
    """

    def __init__(
        self,
        target: Target,
        drafters: Drafter[Any] | Sequence[Drafter[Any]] | None = None,
        *,
        rule: Rule = "match",
        lossy: LossyRule | None = None,
        max_draft: int | Literal["auto"] = "auto",
        max_batch: int = 8,
        costs: PassCosts | None = None,
        profile: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        check_engine_options(rule, max_draft, max_batch)
        self.target = target
        require_one_rule(rule, lossy)
        self.rule: Rule = rule
        self.lossy = lossy
        self.max_draft = max_draft
        self.max_batch = max_batch
        self.drafters = _as_tuple(drafters)
        self.costs = PassCosts() if costs is None else costs
        self._members = _members(self.drafters, target, max_draft)
        _require_chains(rule, self._members)
        if profile is not None:
            self._load(profile, keep_costs=costs is not None)
        asked = self._members if max_draft else []
        roster = Roster(asked, target.vocab_size, clock)
        target.prepare(roster.layers)
        controller = Controller(self.costs, target.pass_rows, asked)
        kind = MeasuredDrafting if max_draft == "auto" else FixedDrafting
        drafting: Drafting = kind(roster, controller)
        self._rounds = Rounds(target, roster, drafting, controller, self.costs, clock)

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
        rows = sequences * (1 + self._rounds.longest_draft)
        self.target.require_room(sequences, tokens, rows, most_read(requests, self.target))

    def check_request(self, request: Request) -> None:
        """Raise PromptError or OptionError for a request that cannot run here; does no work."""
        check_request(request, self.target)
        self.check_speculation(request)

    def check_speculation(self, request: Request) -> None:
        """Raise OptionError for what a request says of drafting that cannot be done here."""
        names = [member.name for member in self._members]
        unknown = [name for name in request.drafters or () if name not in names]
        if unknown:
            known = f"one of {', '.join(names)}" if names else "absent: the engine has no drafters"
            raise OptionError(f"drafters holds {unknown[0]!r}; it must be {known}")
        if request.max_draft is not None:
            require_count("max_draft", request.max_draft, least=0, instead="None or ")
        if request.rule is not None:
            require_rule(request.rule)
            used = request.drafters if request.drafters is not None else names
            _require_chains(request.rule, [m for m in self._members if m.name in used])

    def scheduler(
        self,
        *,
        max_queue: int | None = None,
        prefill_rows: int | None = None,
        max_prefixes: int = 0,
    ) -> Scheduler:
        """Return a scheduler of requests that come over time; at most `max_batch` run at once.

        Arguments as for `SchedulerOptions`. Several may be open at a time, in one thread; what they
        learn of costs and drafts they share.
        """
        options = SchedulerOptions(self.max_batch, max_queue, prefill_rows, max_prefixes)
        return Scheduler(
            self._rounds, options, rule=self.lossy or self.rule, check=self.check_speculation
        )

    def run(
        self, requests: Iterable[Request]
    ) -> Generator[tuple[int, Chunk, RequestState], None, None]:
        """Decode all requests, at most `max_batch` at a time; yield what each round adds.

        Yields (index of the request, chunk, its state). A request that ends makes room for the
        next at once; whoever stops taking early leaves target, drafters and sessions as clean as
        one who takes everything. Raises PromptError for a prompt that cannot be decoded from,
        NumericsError for logits that are no numbers, and whatever a request's own options raise.
        """
        with closing(self.scheduler()) as scheduler:
            indices = {scheduler.submit(request): i for i, request in enumerate(requests)}
            while scheduler.has_work:
                for event in scheduler.step():
                    if isinstance(event, Failed):
                        raise event.error
                    if isinstance(event, Emitted):
                        yield indices[event.ticket], event.chunk, event.state


def check_engine_options(rule: Rule, max_draft: int | Literal["auto"], max_batch: int) -> None:
    """Raise OptionError for a rule that does not exist, or a limit out of its range."""
    require_rule(rule)
    if max_draft != "auto":
        require_count("max_draft", max_draft, least=0, instead="'auto' or ")
    require_count("max_batch", max_batch, least=1)


def require_rule(rule: object) -> None:
    """Raise OptionError for a rule that does not exist."""
    if rule not in get_args(Rule):
        raise OptionError(f"rule is {rule!r}; it must be one of {', '.join(get_args(Rule))}")


def require_one_rule(rule: Rule, lossy: LossyRule | None) -> None:
    """Raise OptionError for a rule that is named beside a lossy one, which would go unheeded."""
    if lossy is not None and rule != "match":
        raise OptionError(
            f"rule is {rule!r} and lossy {str(lossy)!r}: one of them verifies; leave one"
        )


def _require_chains(rule: Rule, members: Sequence[Member]) -> None:
    """Raise OptionError for drafters whose drafts the rule cannot verify."""
    for member in members:
        if rule == "block" and member.drafter.drafts_trees:
            raise OptionError(
                f"rule is 'block', which verifies chains only, but drafter {member.name} draws "
                "trees; use rule 'match', 'rejection' or 'traversal'"
            )


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
