"""A peer in a benchmark: what it is told, and that its answers are answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench_fakes import build_peer
from fake_peer import TRICKS, VERSIONS

from outrider import load
from outrider.bench.base import Case, Counters
from outrider.bench.peers import LoadedPeer, PeerError, PeerOptions, PeerRunner, loaded
from outrider.bench.peers.facts import Facts, read_facts
from outrider.errors import LoadError, OptionError
from support.files import save_tiny_model

FAKE = Path(__file__).with_name("fake_peer.py")
PROMPTS = ([1, 2, 3, 4], [9, 8])


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "target", eos_token_id=1)


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put the stand-in in the place of every adapter; call with how it behaves."""

    def put(how: str) -> None:
        command = [sys.executable, str(FAKE), how]
        monkeypatch.setattr(loaded, "adapter_command", lambda python, adapter: command)

    return put


@contextmanager
def started(case: Case, **options: Any) -> Iterator[PeerRunner]:
    peer = build_peer(case, **options)
    try:
        peer.start()
        yield peer
    finally:
        peer.close()


def case(mode: str = "none", engine: str = "transformers", **options: Any) -> Case:
    return Case(mode, engine, **options)


def test_answers_seconds_counts_memory_and_versions_are_handed_on(faked: Any, target: Path) -> None:
    faked("well")
    with started(case(batch=2), target=str(target)) as peer:
        found = peer.decode(PROMPTS, max_new_tokens=3, seed=7)
        assert found.answers == ((5, 6, 7), (9, 10, 11))
        assert found.seconds == 0.5
        assert found.counters == Counters(rounds=3, proposed=4, accepted=1)
        assert peer.peak_memory() == 3000
        assert peer.versions()["fake"] == VERSIONS["fake"]


def test_a_peer_is_told_the_threads_the_end_of_a_text_and_the_files(
    faked: Any, target: Path
) -> None:
    faked("well")
    options = {"target": str(target), "draft_model": str(target), "threads": 3, "context": 50}
    with started(case("assisted", weights="bfloat16", batch=1), **options) as peer:
        told = json.loads(peer.versions()["said"])
    assert told == {
        "do": "load",
        "model": str(target),
        "draft_model": str(target),
        "head": None,
        "mode": "assisted",
        "weights": "bfloat16",
        "threads": 3,
        "context": 50 + 32,  # room for drafts
        "batch": 1,
        "eos_token_ids": [1],
        "device": "cpu",
    }


def test_threads_are_as_many_as_here_and_all_libraries_are_told(
    faked: Any, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: 5)
    faked("well")
    with started(case(), target=str(target)) as peer:
        assert json.loads(peer.versions()["said"])["threads"] == 5
    variables = loaded._environment(5, 3 * 2**30)
    assert {variables[f"{name}_NUM_THREADS"] for name in ("OMP", "MKL", "OPENBLAS")} == {"5"}
    assert variables["VLLM_CPU_KVCACHE_SPACE"] == "3"


@pytest.mark.parametrize("how", TRICKS)
def test_answers_that_are_none_fail_the_case(faked: Any, target: Path, how: str) -> None:
    faked(how)
    with (
        started(case(), target=str(target)) as peer,
        pytest.raises(PeerError, match=r"^transformers none gave "),
    ):
        peer.decode([[1, 2]], max_new_tokens=4, seed=0)


def test_a_short_answer_is_right_if_it_has_an_end() -> None:
    facts = Facts(vocab_size=64, eos_token_ids=(1,), context=50, bytes_per_token=1)
    assert facts.problem([5, 1], 4) is None
    assert facts.problem([5, 6, 7, 8], 4) is None
    assert facts.problem([1], 4) is None
    assert facts.problem([5, 6], 4) == "2 tokens without an end of text where 4 were asked for"
    assert facts.problem([5, True], 2) == "True is none of 64 token ids"


FAILING = {
    "fails to load": "transformers none failed: RuntimeError: no such weights",
    "no versions": "transformers none replied without versions",
    "dies": "transformers none ended with exit code 3",
}


@pytest.mark.parametrize("how", FAILING)
def test_a_peer_that_cannot_be_loaded_is_one_error(faked: Any, target: Path, how: str) -> None:
    faked(how)
    with pytest.raises(PeerError, match=FAILING[how]), started(case(), target=str(target)):
        pass


def test_an_error_while_decoding_leaves_the_peer_usable(faked: Any, target: Path) -> None:
    faked("fails to decode")
    with started(case(), target=str(target)) as peer:
        for _ in range(2):
            with pytest.raises(PeerError, match="failed: ValueError: too long a prompt"):
                peer.decode([[1, 2]], max_new_tokens=4, seed=0)


def test_what_cannot_be_is_refused_before_anything_is_started(target: Path) -> None:
    with pytest.raises(OptionError, match="peer 'x' is unknown"):
        build_peer(case(engine="x"), target=str(target))
    with pytest.raises(OptionError, match="transformers has no mode 'ngram'"):
        build_peer(case("ngram"), target=str(target))
    python = Path(sys.executable)
    failing: tuple[tuple[Case, dict[str, Any], str], ...] = (
        (case("assisted"), {}, "transformers assisted needs a draft model"),
        (case(engine="vllm"), {"device": "cuda"}, "vllm is compared on a CPU only, not on cuda"),
        (case(engine="llama.cpp"), {}, "llama.cpp reads GGUF files, and .* is none"),
        (case("eagle3", "vllm"), {}, "names no head, and none comes with outrider"),
    )
    for asked, options, problem in failing:
        peer = build_peer(asked, target=str(target), python=python, **options)
        with pytest.raises((PeerError, OptionError), match=problem):
            peer.start()
        peer.close()
    with pytest.raises(LoadError, match="no such file or folder"):
        build_peer(case(), target="./nowhere").start()


def test_logs_are_kept_by_mode(faked: Any, target: Path, tmp_path: Path) -> None:
    faked("well")
    with started(case(batch=4), target=str(target), log_folder=tmp_path / "logs"):
        pass
    assert [path.name for path in (tmp_path / "logs").iterdir()] == [
        "transformers-none-float32.log"
    ]


def test_cases_share_a_process_that_ends_with_its_last_user(faked: Any, target: Path) -> None:
    faked("well")
    shared = LoadedPeer(case(), PeerOptions(str(target), batch=4))
    warm, many = (PeerRunner(one, shared) for one in (case(temperature=1.0), case(batch=4)))
    assert not warm.is_ready
    warm.start()
    assert many.is_ready
    many.start()
    warm.close()
    warm.close()
    assert many.decode(PROMPTS, max_new_tokens=3, seed=7).answers == ((5, 6, 7), (9, 10, 11))
    many.close()
    assert not warm.is_ready


def test_a_process_that_died_is_loaded_again_for_another_case(faked: Any, target: Path) -> None:
    faked("dies decoding")
    shared = LoadedPeer(case(), PeerOptions(str(target)))
    one, other = (PeerRunner(case(temperature=t), shared) for t in (0.0, 1.0))
    one.start()
    other.start()
    with pytest.raises(PeerError, match="ended with exit code 3"):
        one.decode(PROMPTS, max_new_tokens=3, seed=7)
    one.close()
    assert not other.is_ready
    faked("well")
    other.start()
    assert other.decode(PROMPTS, max_new_tokens=3, seed=7).answers == ((5, 6, 7), (9, 10, 11))
    other.close()


def test_a_peer_that_memory_has_no_room_for_is_not_started(
    faked: Any, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faked("well")
    monkeypatch.setattr(loaded, "available_memory", lambda device: 1000)
    with pytest.raises(PeerError, match=r"0\.0 GiB are free") as raised:
        build_peer(case(), target=str(target)).start()
    assert "--peer-processes" in raised.value.advice


def test_facts_are_those_outrider_decodes_by(target: Path) -> None:
    facts = read_facts(str(target))
    assert facts.eos_token_ids == load(str(target)).eos_token_ids == (1,)
    assert (facts.vocab_size, facts.context) == (64, 128)
    assert facts.bytes_per_token == 2 * 2 * 32 * 4  # layers, keys and values, width, float32
    assert read_facts(str(target), context=20).context == 20


@pytest.mark.parametrize("mode", ["none", "prompt-lookup", "assisted"])
def test_transformers_says_what_outrider_says(mode: str, tmp_path: Path) -> None:
    """End to end, in a process of its own with this Python."""
    folder = save_tiny_model(tmp_path / "model", eos_token_id=None)
    expected = load(str(folder), dtype="float32").generate(
        [1, 2, 3, 1, 2, 3, 1, 2], max_new_tokens=12, temperature=0.0
    )
    options = {"target": str(folder), "draft_model": str(folder), "python": Path(sys.executable)}
    with started(case(mode), **options) as peer:
        found = peer.decode([expected.prompt_ids], max_new_tokens=12, seed=0)
        assert found.answers == (expected.token_ids,)
        assert found.counters is not None
        accepted = found.counters.accepted
        assert found.counters.rounds + accepted == 12
        assert accepted <= found.counters.proposed
        assert (found.counters.proposed == 0) == (mode == "none")
        assert peer.versions().keys() == {"transformers", "torch"}
