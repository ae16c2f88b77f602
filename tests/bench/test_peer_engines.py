"""The real peers, where they are installed: with the same weights they say what outrider says."""

from __future__ import annotations

from functools import cache

import pytest
from bench_fakes import build_peer

from outrider import load
from outrider.bench.base import Case
from outrider.bench.peers import PEERS, PeerError
from outrider.bench.peers.environment import find_python
from outrider.bench.peers.kinds import find_kind

TARGET = "smollm2-135m"
LENGTH = 12
TEXTS = ("What is the capital of France?", "Repeat this: red, green, red, green, red, green.")
MODES = [(name, mode.name) for name in PEERS for mode in find_kind(name).modes]


@cache
def expected() -> dict[tuple[int, ...], tuple[int, ...]]:
    """Return what outrider's plain decoding answers to prompts, of which one answer has an end."""
    decoder = load(TARGET, dtype="float32", profile=False)
    prompts = [decoder.encode(text, chat=True) for text in TEXTS]
    results = [decoder.generate(p, max_new_tokens=LENGTH, temperature=0.0) for p in prompts]
    assert {result.finish_reason for result in results} == {"stop", "length"}
    return {result.prompt_ids: result.token_ids for result in results}


@pytest.mark.peers
@pytest.mark.embedded
@pytest.mark.parametrize(("name", "mode"), MODES)
def test_a_peer_says_what_outrider_says(name: str, mode: str) -> None:
    kind = find_kind(name)
    try:
        find_python(kind)
    except PeerError as error:
        pytest.skip(error.problem)
    batch = len(TEXTS) if kind.mode(mode).batches else 1
    peer = build_peer(
        Case(mode, name, batch=batch), target=TARGET, draft_model=TARGET, context=256, threads=1
    )
    try:
        peer.start()
        prompts = list(expected())
        answers = [
            answer
            for first in range(0, len(prompts), batch)
            for answer in peer.decode(
                prompts[first : first + batch], max_new_tokens=LENGTH, seed=0
            ).answers
        ]
        assert answers == list(expected().values())
        assert peer.versions()
    finally:
        peer.close()


@pytest.mark.peers
@pytest.mark.embedded
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_samples_the_same_with_the_same_seed(name: str) -> None:
    kind = find_kind(name)
    try:
        find_python(kind)
    except PeerError as error:
        pytest.skip(error.problem)
    peer = build_peer(Case("none", name, temperature=1.0), target=TARGET, context=256, threads=1)
    try:
        peer.start()
        prompt = next(iter(expected()))
        drawn = [
            peer.decode([prompt], max_new_tokens=LENGTH, seed=seed).answers for seed in (1, 1, 2)
        ]
        assert drawn[0] == drawn[1] != drawn[2]
    finally:
        peer.close()
