"""A proof from beginning to end: four parts, unit by unit, with a journal if it has to last."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from outrider.decoder import Decoder
from outrider.engine.request import check_prompt
from outrider.errors import DrafterWarning, OptionError
from outrider.journal import Journal, read_journal
from outrider.machine import this_machine
from outrider.profile import describe_subject
from outrider.proof.base import PARTS, Check, Part, Proof, Work, merged
from outrider.proof.comparing import Comparer
from outrider.proof.distribution import DistributionTests
from outrider.proof.identity import IdentityTrials
from outrider.proof.laws import require_statistics
from outrider.proof.options import OptionTrials
from outrider.proof.rules import OUR_RULES, Rules, rule_weight, rule_work
from outrider.proof.variants import chain_drafters, named_drafters, option_variants, variants
from outrider.workload.files import WorkloadPrompt, default_workload

Progress: TypeAlias = Callable[[str, float], None]
"""Told what is being checked, and what share of the work is done."""

_IDENTITY_SHARE = 0.6  # of the tokens; the options get the others
_FEWEST_TOKENS, _FEWEST_DRAWS = 1, 200
_JOURNAL = "proof"


def prove(
    decoder: Decoder,
    workload: Sequence[WorkloadPrompt] | None = None,
    *,
    tokens: int = 2000,
    draws: int = 500,
    seed: int = 0,
    parts: Sequence[Part] = PARTS,
    rules: Rules = OUR_RULES,
    journal: Path | None = None,
    progress: Progress = lambda *_: None,
) -> Proof:
    """Check that a decoder's drafters leave its target's text alone, on this machine.

    At least `tokens` tokens are compared with plain decoding's, and every test of a distribution
    has about `draws` answers. With a `journal`, a stopped proof goes on where it was. Ctrl-C ends
    it early: the proof then holds what was checked by then, and is none. `rules` are what is
    enumerated: those of outrider, unless a test wants to see wrong ones found.

    Raises OptionError for options out of range, a lossy decoder or a journal of another run, and
    PromptError for a prompt that the model cannot take.
    """
    require_lossless(decoder)
    check_options(tokens, draws, seed)
    _check_parts(parts)
    prompts = encoded(decoder, default_workload() if workload is None else workload)
    settings = {"tokens": tokens, "draws": draws, "seed": seed, "prompts": len(prompts)}
    plan = _plan(decoder, prompts, tokens, draws, seed, parts, rules)
    run = _Run(progress, sum(weight for weight, _ in plan))
    started = time.perf_counter()
    was_interrupted = False
    with _Log(journal, _made_with(decoder, prompts, settings, parts)) as log, quiet():
        try:
            for _, work in plan:
                run.do(work, log)
        except KeyboardInterrupt:
            was_interrupted = True
    target: Any = decoder.engine.target
    return Proof(
        subject=describe_subject(decoder.loaded, target),
        machine=this_machine(target.device),
        drafters=tuple(named.name for named in named_drafters(decoder)),
        settings=settings,
        checks=merged(run.checks),
        seconds=time.perf_counter() - started,
        was_interrupted=was_interrupted,
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _plan(
    decoder: Decoder,
    prompts: Sequence[tuple[str, tuple[int, ...]]],
    tokens: int,
    draws: int,
    seed: int,
    parts: Sequence[Part],
    rules: Rules,
) -> list[tuple[float, Work]]:
    """Return the weight and the work of each part, those that take longest last."""
    mine, chains = named_drafters(decoder), chain_drafters(decoder)
    comparer = Comparer(decoder)
    plan: list[tuple[float, Work]] = []
    if "rules" in parts:
        plan.append((rule_weight(rules), rule_work(rules)))
    if "distribution" in parts:
        ids = [prompt_ids for _, prompt_ids in prompts]
        tests = DistributionTests(decoder, ids, mine, chains, draws=draws, seed=seed)
        plan.append((tests.weight, tests.work()))
    if "options" in parts:
        options = OptionTrials(
            comparer,
            prompts,
            option_variants(decoder),
            tokens=round(tokens * (1 - _IDENTITY_SHARE)),
            seed=seed,
            tokenizer=decoder.tokenizer,
        )
        plan.append((options.weight, options.work()))
    if "identity" in parts:
        trials = IdentityTrials(
            comparer,
            prompts,
            variants(decoder, chains),
            tokens=round(tokens * _IDENTITY_SHARE),
            seed=seed,
        )
        plan.append((trials.weight, trials.work()))
    return plan


@dataclass
class _Run:
    """Does units one after the other, and keeps their checks."""

    progress: Progress
    total: float

    def __post_init__(self) -> None:
        self.checks: list[Check] = []
        self._done = 0.0

    def do(self, work: Work, log: _Log) -> None:
        """Do all units of a part that the log does not hold."""
        try:
            unit = next(work)
            while True:
                check = log.find(unit.key)
                if check is None:
                    self.progress(unit.key, min(1.0, self._done / self.total))
                    check = unit.run()
                    log.keep(unit.key, check)
                self.checks.append(check)
                self._done += unit.weight
                unit = work.send(check)
        except StopIteration:
            return


class _Log:
    """The checks of earlier runs with the same settings, and those of this one, in a journal."""

    def __init__(self, path: Path | None, made_with: dict[str, Any]) -> None:
        self._journal = None if path is None else Journal(path, _JOURNAL, made_with)
        self._known = {} if path is None else dict(read_journal(path, _JOURNAL, _read))

    def find(self, key: str) -> Check | None:
        """Return the check a unit came to before, None if it is not done yet."""
        return self._known.get(key)

    def keep(self, key: str, check: Check) -> None:
        """Write down what a unit came to."""
        if self._journal is not None:
            self._journal.append({"unit": key, "check": check.to_dict()})

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._journal is not None:
            self._journal.__exit__(*exception)


def _read(record: Any) -> tuple[str, Check]:
    return str(record["unit"]), Check.from_dict(record["check"])


def _made_with(
    decoder: Decoder,
    prompts: Sequence[tuple[str, tuple[int, ...]]],
    settings: dict[str, Any],
    parts: Sequence[Part],
) -> dict[str, Any]:
    """Return all that a proof depends on, which is what a journal must have been made with."""
    target: Any = decoder.engine.target
    digest = hashlib.sha256(json.dumps(prompts).encode()).hexdigest()[:16]
    return {
        **settings,
        "prompts": digest,
        "parts": list(parts),
        "drafters": [named.name for named in named_drafters(decoder)],
        **asdict(describe_subject(decoder.loaded, target)),
        **asdict(this_machine(target.device)),
    }


def require_lossless(decoder: Decoder) -> None:
    """Raise OptionError for a decoder with a lossy rule: of that, nothing can be proved."""
    if decoder.engine.lossy is not None:
        raise OptionError(
            f"lossy is {str(decoder.engine.lossy)!r}, which promises nothing that could be proved; "
            "measure_loss tells how far it leads"
        )


def check_options(tokens: int, draws: int, seed: int) -> None:
    """Raise OptionError for counts that are none, or too small to tell anything."""
    for name, value, least in (
        ("tokens", tokens, _FEWEST_TOKENS),
        ("draws", draws, _FEWEST_DRAWS),
        ("seed", seed, 0),
    ):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise OptionError(f"{name} is {value!r}; it must be an integer of at least {least}")


def _check_parts(parts: Sequence[Part]) -> None:
    if not parts or any(part not in PARTS for part in parts):
        raise OptionError(f"parts is {list(parts)}; it must hold some of {', '.join(PARTS)}")
    if "distribution" in parts:
        require_statistics()


def encoded(
    decoder: Decoder, workload: Sequence[WorkloadPrompt]
) -> list[tuple[str, tuple[int, ...]]]:
    """Return names and ids of the prompts; whatever could fail later fails here."""
    if not workload:
        raise OptionError("the workload holds no prompts")
    template = getattr(decoder.tokenizer, "chat_template", None)
    found = []
    for prompt in workload:
        is_chat = isinstance(prompt.prompt, str) and template is not None
        ids = decoder.encode(prompt.prompt, chat=is_chat)
        check_prompt(ids, decoder.engine.target)
        found.append((prompt.id, ids))
    return found


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings of dropped drafters back: the proof names them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DrafterWarning)
        yield
