"""Whether peers say what outrider says: `python -m outrider.bench.peers.check --help`.

With the same float32 weights, greedy ids of all programs are equal up to ties of floating point.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from outrider.bench.base import Case
from outrider.bench.peers.cases import plan_peer
from outrider.bench.peers.kinds import PEERS, find_kind
from outrider.bench.peers.loaded import LoadedPeer, PeerOptions
from outrider.bench.peers.runner import PeerRunner
from outrider.difference import find_difference
from outrider.errors import OutriderError
from outrider.types import TokenIds

_WEIGHTS = "float32"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a mode of a peer answered to all prompts."""

    case: Case
    tokens: int = 0
    seconds: float = 0.0
    differences: tuple[str, ...] = ()
    """Where its ids part from outrider's, for each prompt where they do."""
    versions: str = ""
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return f"{self.case.label}: {self.error}"
        rate = self.tokens / self.seconds if self.seconds else 0.0
        same = "; ".join(self.differences) or "identical"
        return f"{self.case.label}: {same}; {rate:.1f} tokens/s ({self.versions})"


def own_answers(
    target: str, prompts: Sequence[TokenIds], max_new_tokens: int
) -> list[tuple[int, ...]]:
    """Return the ids of outrider's plain greedy decoding with float32 weights."""
    from outrider import load
    from outrider.sampling.params import SamplingParams

    decoder = load(target, dtype=_WEIGHTS, device="cpu", profile=False)
    params = SamplingParams(temperature=0.0, max_new_tokens=max_new_tokens)
    return [decoder.generate(ids, params=params).token_ids for ids in prompts]


def check_peer(
    name: str,
    prompts: Sequence[TokenIds],
    expected: Sequence[TokenIds],
    *,
    options: PeerOptions,
    max_new_tokens: int,
    modes: Sequence[str] = (),
) -> Iterator[Finding]:
    """Decode prompts greedily in modes of a peer, and compare them with what is expected.

    No `modes` are all of them. Raises OptionError for a mode that the peer does not have.
    """
    for mode in modes:
        find_kind(name).mode(mode)
    plan = plan_peer(
        name,
        temperatures=(0.0,),
        batches=(options.batch,),
        weights=_WEIGHTS,
        draft_model=options.draft_model,
    )
    for case in plan.cases:
        if modes and case.drafter not in modes:
            continue
        runner = PeerRunner(case, LoadedPeer(case, options))
        try:
            runner.start()
            yield _compare(runner, prompts, expected, max_new_tokens)
        except OutriderError as error:
            yield Finding(case, error=str(error))
        finally:
            runner.close()


def _compare(
    runner: PeerRunner,
    prompts: Sequence[TokenIds],
    expected: Sequence[TokenIds],
    max_new_tokens: int,
) -> Finding:
    answers: list[tuple[int, ...]] = []
    seconds, batch = 0.0, runner.case.batch
    for first in range(0, len(prompts), batch):
        group = prompts[first : first + batch]
        decoded = runner.decode(group, max_new_tokens=max_new_tokens, seed=0)
        answers += decoded.answers
        seconds += decoded.seconds
    found = [find_difference(own, ids) for own, ids in zip(answers, expected, strict=True)]
    return Finding(
        runner.case,
        tokens=sum(map(len, answers)),
        seconds=seconds,
        differences=tuple(f"prompt {i}: {one}" for i, one in enumerate(found) if one),
        versions=", ".join(f"{name} {number}" for name, number in runner.versions().items()),
    )


def main(
    peers: Annotated[str, typer.Option(help="Names, with commas between.")] = ",".join(PEERS),
    target: Annotated[str, typer.Option(help="Alias, hub id, folder or .gguf file.")] = (
        "smollm2-135m"
    ),
    modes: Annotated[
        str | None, typer.Option(help="Modes of these peers, with commas between; all by default.")
    ] = None,
    draft_model: Annotated[str | None, typer.Option(help="For modes that need one.")] = None,
    prompts: Annotated[int, typer.Option(help="How many prompts of outrider's own.")] = 3,
    max_new_tokens: Annotated[int, typer.Option(help="Most tokens to write a prompt.")] = 64,
    batch: Annotated[int, typer.Option(help="Prompts decoded together.")] = 1,
) -> None:
    """Decode a few prompts greedily with peers and with outrider, and compare the token ids.

    Exit code 1 if a mode fails or says anything else.
    """
    from outrider.targets.loading import load_tokenizer
    from outrider.workload.encode import encode_workload_prompt
    from outrider.workload.files import default_workload

    tokenizer = load_tokenizer(target)
    chosen = default_workload()[:prompts]
    ids = [encode_workload_prompt(prompt, tokenizer) for prompt in chosen]
    expected = own_answers(target, ids, max_new_tokens)
    options = PeerOptions(target=target, draft_model=draft_model, batch=batch)
    is_good = True
    for name in peers.split(","):
        try:
            for finding in check_peer(
                name,
                ids,
                expected,
                options=options,
                max_new_tokens=max_new_tokens,
                modes=modes.split(",") if modes else (),
            ):
                typer.echo(str(finding))
                is_good = is_good and not (finding.error or finding.differences)
        except OutriderError as error:
            typer.echo(f"{name}: {error}")
            is_good = False
    raise typer.Exit(0 if is_good else 1)


if __name__ == "__main__":
    typer.run(main)
