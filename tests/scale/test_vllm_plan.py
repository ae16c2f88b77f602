"""What vLLM is started with says all that was asked for, and what cannot be said is refused."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from outrider.checkpoints.base import Checkpoint
from outrider.checkpoints.read import read_checkpoint
from outrider.checkpoints.write import write_checkpoint
from outrider.engine.costs import PassCosts
from outrider.errors import LoadError, OptionError, OutriderError, VocabularyMismatchError
from outrider.machine import this_machine
from outrider.profile import Profile, Subject
from outrider.scale import plan as planning
from outrider.scale.plan import Launch, VllmOptions, plan_launch
from outrider.scale.schedule import KEY
from support.drafts import draft_of, save_draft
from support.files import WORDS, save_tiny_model, write_tiny_gguf
from support.heads import eagle_config
from support.seeded import eagle_tensors
from support.vllm import make_vllm

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="vLLM does not run there")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "target", num_hidden_layers=6)


@pytest.fixture
def python(tmp_path: Path) -> Path:
    return make_vllm(tmp_path / "vllm")


def planned(target: Path | str, python: Path, **options: Any) -> Launch:
    asked: dict[str, Any] = {"drafter": "none"}
    return plan_launch(VllmOptions(target=str(target), python=python, **(asked | options)))


def eagle_head(version: int = 3) -> Checkpoint:
    config = eagle_config(version, vocab_size=WORDS, draft_vocab_size=WORDS)
    return Checkpoint(config=config, tensors=eagle_tensors(config))


def value_of(launch: Launch, flag: str) -> str:
    return launch.command[launch.command.index(flag) + 1]


def test_every_option_reaches_the_server(target: Path, python: Path) -> None:
    launch = planned(
        target,
        python,
        dtype="bfloat16",
        is_eager=True,
        trust_remote_code=True,
        tensor_parallel=4,
        pipeline_parallel=2,
        max_batch=32,
        host="0.0.0.0",
        port=9000,
        name="mine",
        api_keys=("key",),
        cors_origins=("https://x",),
        drain_seconds=12.0,
        extra=("--max-model-len", "100"),
    )
    said = f"""{python} -m vllm.entrypoints.openai.api_server --model {target}
        --served-model-name mine --dtype bfloat16 --host 0.0.0.0 --port 9000
        --allowed-origins ["https://x"] --shutdown-timeout 12 --tensor-parallel-size 4
        --pipeline-parallel-size 2 --max-num-seqs 32 --enforce-eager --trust-remote-code
        --max-model-len 100"""
    assert list(launch.command) == said.split()
    assert launch.variables == {"VLLM_API_KEY": "key"}
    assert launch.speculative is None and launch.drain_seconds == 12.0


def test_without_options_only_what_must_be_said_is_said(target: Path, python: Path) -> None:
    said = f"""{python} -m vllm.entrypoints.openai.api_server --model {target}
        --served-model-name {target} --dtype float32 --host 127.0.0.1 --port 8000
        --allowed-origins [] --shutdown-timeout 30"""
    assert list(planned(target, python).command) == said.split()


def test_a_key_is_shown_to_nobody(target: Path, python: Path) -> None:
    launch = planned(target, python, api_keys=("s3cret",))
    assert "s3cret" not in json.dumps(launch.to_dict())
    assert not any("s3cret" in word for word in launch.command)


def test_weights_of_float32_stay_so(tmp_path: Path, python: Path) -> None:
    target = save_tiny_model(tmp_path / "half")
    model: Any = AutoModelForCausalLM.from_pretrained(target, dtype=torch.bfloat16)
    model.save_pretrained(target)
    assert value_of(planned(target, python), "--dtype") == "bfloat16"
    assert value_of(planned(target, python, dtype="float32"), "--dtype") == "float32"


def test_weights_that_vllm_does_not_compute_in_are_not_rounded_unasked(
    tmp_path: Path, python: Path
) -> None:
    target = save_tiny_model(tmp_path / "double")
    model: Any = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float64)
    model.save_pretrained(target)
    with pytest.raises(OptionError, match=r"has weights of torch\.float64, which vLLM does not"):
        planned(target, python)
    assert value_of(planned(target, python, dtype="float32"), "--dtype") == "float32"


def test_a_gguf_file_is_expanded_to_what_the_build_computes_in(
    tmp_path: Path, python: Path
) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    launch = planned(path, python)
    assert value_of(launch, "--dtype") == "float32"
    assert Path(value_of(launch, "--model"), "config.json").is_file()
    assert value_of(launch, "--tokenizer") != value_of(launch, "--model")
    gpu = make_vllm(tmp_path / "gpu", name="vllm")
    assert value_of(planned(path, gpu), "--dtype") == "bfloat16"


def test_ngram_is_told_the_same_lengths_of_agreement(target: Path, python: Path) -> None:
    launch = planned(target, python, drafter="ngram")
    assert launch.speculative == {
        "method": "ngram",
        "num_speculative_tokens": 5,
        "prompt_lookup_min": 2,
        "prompt_lookup_max": 5,
    }
    assert json.loads(value_of(launch, "--speculative-config")) == launch.speculative
    assert any("vLLM's own drafter" in note for note in launch.notes)


def test_suffix_is_a_class_of_ours_that_vllm_can_import(target: Path, python: Path) -> None:
    launch = planned(target, python, drafter="suffix")
    assert launch.speculative == {
        "method": "custom_class",
        "num_speculative_tokens": 15,
        "model": "outrider.scale.proposer.SuffixProposer",
    }
    assert json.loads(value_of(launch, "--additional-config")) == {KEY: [[1, 1, 15, 0.1]]}
    assert (Path(launch.variables["PYTHONPATH"]) / "outrider" / "scale" / "proposer.py").is_file()


def test_an_eagle_3_head_is_exported_as_a_speculator_of_the_target(
    tmp_path: Path, target: Path, python: Path
) -> None:
    write_checkpoint(eagle_head(), "native", tmp_path / "head")
    launch = planned(target, python, drafter=f"eagle:{tmp_path / 'head'}")
    assert launch.speculative is not None
    assert launch.speculative["method"] == "eagle3"
    assert launch.speculative["num_speculative_tokens"] == 3
    written = read_checkpoint(Path(launch.speculative["model"]))
    assert (written.format, written.target) == ("speculators", str(target))


def test_a_draft_model_of_ours_is_exported_whole(
    tmp_path: Path, target: Path, python: Path
) -> None:
    model: Any = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    spec = save_draft(tmp_path / "draft", draft_of(model, [0, 5]))
    launch = planned(target, python, drafter=spec)
    assert launch.speculative is not None and launch.speculative["method"] == "draft_model"
    whole: Any = AutoModelForCausalLM.from_pretrained(launch.speculative["model"])
    assert whole.config.num_hidden_layers == 2
    assert torch.equal(whole.get_input_embeddings().weight, model.get_input_embeddings().weight)
    again = planned(target, python, drafter=spec)
    assert again.speculative == launch.speculative


def test_a_whole_draft_model_is_taken_as_it_is(tmp_path: Path, target: Path, python: Path) -> None:
    draft = save_tiny_model(tmp_path / "draft")
    launch = planned(target, python, drafter=f"model:{draft}", max_draft=2)
    assert launch.speculative == {
        "method": "draft_model",
        "num_speculative_tokens": 2,
        "model": str(draft),
    }


def test_a_draft_model_of_other_token_ids_is_refused(
    tmp_path: Path, target: Path, python: Path
) -> None:
    wider = save_tiny_model(tmp_path / "wider", vocab_size=128)
    with pytest.raises(OptionError, match="has 128 token ids and the target 64: vLLM wants as"):
        planned(target, python, drafter=f"model:{wider}")
    other = save_tiny_model(tmp_path / "other")
    file = other / "tokenizer.json"
    file.write_text(file.read_text().replace('"w7"', '"other"'))
    with pytest.raises(VocabularyMismatchError):
        planned(target, python, drafter=f"model:{other}")


REFUSED = {
    "suffix,ngram": "drafter 'suffix,ngram' names several, and vLLM has one drafter at a time",
    "medusa:head": "drafter 'medusa:head' cannot be had with vLLM: outrider hands it no Medusa",
    "model:x?way=text": "names a way to draft with another tokenizer, which vLLM does",
    "early-exit:2": "cannot be had with vLLM: it cannot leave a target",
    "prediction": "cannot be had with vLLM: its requests bring no predictions",
    "oracle": "drafter 'oracle' is unknown",
    "model:draft@int8": "has weights of eight bits, which are outrider's own",
    "eagle": "none comes with outrider for",
    "eagle:gone": "unknown head 'gone'",
}


@pytest.mark.parametrize("drafter", REFUSED)
def test_a_drafter_that_vllm_cannot_have_is_refused_by_name(
    target: Path, python: Path, drafter: str
) -> None:
    if drafter == "model:draft@int8":
        drafter = f"model:{target}@int8"
    words = REFUSED.get(drafter, REFUSED["model:draft@int8"])
    for options in ({}, {"max_draft": 0}) if drafter in ("oracle", "suffix,ngram") else ({},):
        with pytest.raises(OutriderError, match=words):
            planned(target, python, drafter=drafter, **options)


def test_a_head_that_is_no_eagle_3_is_refused(tmp_path: Path, target: Path, python: Path) -> None:
    write_checkpoint(eagle_head(version=1), "native", tmp_path / "head")
    with pytest.raises(OptionError, match="EAGLE-1 heads cannot be written as speculators"):
        planned(target, python, drafter=f"eagle:{tmp_path / 'head'}")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "tensor parallel": ({"tensor_parallel": 0}, "tensor_parallel is 0"),
    "pipeline parallel": ({"pipeline_parallel": -1}, "pipeline_parallel is -1"),
    "batch": ({"max_batch": 0}, "max_batch is 0"),
    "drain": ({"drain_seconds": -1.0}, "drain_seconds is -1"),
    "port": ({"port": 0}, "port is 0; with vLLM it must be from 1"),
    "draft": ({"max_draft": -1}, "max_draft is -1"),
    "keys": ({"api_keys": ("a", "b")}, "api-key is given 2 times"),
    "empty key": ({"api_keys": ("",)}, "api-key is empty"),
    "dtype": ({"dtype": "int4"}, "dtype is 'int4'"),
    "model": ({"extra": ("--model", "x")}, "'--model' after -- is set by outrider's own"),
    "underscores": ({"extra": ("--max_num_seqs=3",)}, "is set by outrider's own options"),
    "short": ({"extra": ("-tp", "2")}, "'-tp' after -- is set by outrider's own options"),
    "abbreviated": ({"extra": ("--speculative-c", "{}")}, "--speculative-config"),
    "a part": ({"extra": ("--speculative-config.method", "x")}, "--speculative-config"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_option_is_refused_by_name(target: Path, python: Path, what: str) -> None:
    options, words = WRONG[what]
    with pytest.raises(OptionError, match=words):
        planned(target, python, **options)


def test_a_target_of_eight_bits_is_refused(target: Path, python: Path) -> None:
    with pytest.raises(OptionError, match="weights of eight bits, which are outrider's own"):
        planned(f"{target}@int8", python)


def test_suffix_needs_a_python_that_outrider_runs_with(target: Path, tmp_path: Path) -> None:
    old = make_vllm(tmp_path / "old", python=(3, 10))
    with pytest.raises(OptionError, match=r"needs Python 3\.11 or newer where vLLM is"):
        planned(target, old, drafter="suffix")
    assert planned(target, old, drafter="ngram").speculative is not None


def test_another_release_is_named(target: Path, tmp_path: Path) -> None:
    other = make_vllm(tmp_path / "other", version="0.40.1")
    assert "vLLM is 0.40.1; outrider is tested with 0.32.0" in planned(target, other).notes


@pytest.mark.parametrize("said", [("--distributed-executor-backend=ray",), ("-x", "ray")])
def test_with_ray_suffix_has_to_be_installed_everywhere(
    target: Path, python: Path, said: tuple[str, ...]
) -> None:
    assert "on every machine of Ray" in str(planned(target, python, drafter="suffix", extra=said))
    assert "Ray" not in str(planned(target, python, drafter="suffix"))
    assert "Ray" not in str(planned(target, python, drafter="ngram", extra=said))


# -- lengths ------------------------------------------------------------------------------------


def flat_profile(target: Path, **drafters: Any) -> Profile:
    points = [(b * w, 0.0, max(1.0, b * w / 32), b) for b in (1, 2, 4, 8) for w in (1, 2, 4, 8)]
    subject = Subject(str(target), "digest", "float32", "fast", False, "cpu")
    return Profile(
        subject,
        this_machine(torch.device("cpu")),
        PassCosts.measured(points).to_dict(),
        drafters,
        measured="2030-01-01T00:00:00+00:00",
    )


def record(step: float = 0.02) -> dict[str, Any]:
    from outrider.engine.acceptance import AcceptancePool

    alone = {"requests": 1, "fixed": 0.0, "step": step, "unread": 0.0, "pass": 1.0}
    cost = {"batches": [alone | {"variance": [0.0, 0.0, 0.0]}]}
    levels = [[0.8**depth, 1.0] for depth in range(1, 6)]
    pool = AcceptancePool()
    for _ in range(20):
        pool.learn_chance(5, 0.8, True)
    return {"cost": cost, "acceptance": pool.to_dict(), "gains": levels}


def test_a_profile_decides_the_lengths_by_batch(tmp_path: Path, target: Path, python: Path) -> None:
    draft = save_tiny_model(tmp_path / "draft")
    spec = f"model:{draft}"
    flat_profile(target, **{spec: record()}).save()
    launch = planned(target, python, drafter=spec, max_batch=64)
    assert launch.speculative is not None
    spans = launch.speculative["num_speculative_tokens_per_batch_size"]
    lengths = [length for _, _, length in spans]
    assert spans[0][0] == 1 and lengths == sorted(lengths, reverse=True)
    assert launch.speculative["num_speculative_tokens"] == lengths[0] > lengths[-1] == 0
    assert any("by the profile of 2030-01-01" in note for note in launch.notes)


def test_suffix_has_its_lengths_by_batch_from_the_same_profile(target: Path, python: Path) -> None:
    flat_profile(target).save()
    launch = planned(target, python, drafter="suffix", max_batch=64)
    schedule = json.loads(value_of(launch, "--additional-config"))[KEY]
    assert schedule[0][2] == 15 and schedule[-1][3] > schedule[0][3]


def test_replicas_get_the_best_single_length(tmp_path: Path, target: Path, python: Path) -> None:
    draft = save_tiny_model(tmp_path / "draft")
    spec = f"model:{draft}"
    flat_profile(target, **{spec: record()}).save()
    launch = planned(target, python, drafter=spec, max_batch=8, extra=("--data-parallel-size", "2"))
    assert launch.speculative is not None
    assert "num_speculative_tokens_per_batch_size" not in launch.speculative
    assert any("one length for all loads" in note for note in launch.notes)


def test_where_nothing_pays_vllm_decodes_plainly(
    tmp_path: Path, target: Path, python: Path
) -> None:
    draft = save_tiny_model(tmp_path / "draft")
    spec = f"model:{draft}"
    flat_profile(target, **{spec: record(step=9.0)}).save()
    launch = planned(target, python, drafter=spec)
    assert launch.speculative is None
    assert "--speculative-config" not in launch.command
    assert any("vLLM decodes plainly" in note for note in launch.notes)


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "bfloat16"},
        {"model": "another"},
        {"machine": True},
    ],
)
def test_a_profile_of_something_else_is_not_used(
    target: Path, python: Path, changes: dict[str, Any]
) -> None:
    profile = flat_profile(target)
    if changes.pop("machine", False):
        profile = replace(profile, machine=replace(profile.machine, processor="another"))
    replace(profile, subject=replace(profile.subject, **changes)).save()
    launch = planned(target, python, drafter="suffix")
    assert any("no profile of this target" in note for note in launch.notes)


@pytest.mark.skipif(torch.cuda.is_available(), reason="profiles of a CPU are for machines without")
def test_a_profile_of_a_cpu_says_nothing_of_a_gpu(target: Path, tmp_path: Path) -> None:
    flat_profile(target).save()
    launch = planned(target, make_vllm(tmp_path / "gpu", name="vllm"), drafter="suffix")
    assert any("no profile of this target" in note for note in launch.notes)


def test_a_damaged_profile_is_passed_over_or_named(target: Path, python: Path) -> None:
    path = flat_profile(target).save()
    path.write_text("{")
    launch = planned(target, python, drafter="suffix")
    assert any("no profile of this target" in note for note in launch.notes)
    replace(flat_profile(target), passes={"knots": []}).save()
    with pytest.raises(LoadError, match="is damaged"):
        planned(target, python, drafter="suffix")


@pytest.mark.parametrize("drafter", ["ngram", "suffix"])
def test_a_length_that_was_asked_for_is_drafted_whatever_the_profile_says(
    target: Path, python: Path, drafter: str
) -> None:
    flat_profile(target).save()
    launch = planned(target, python, drafter=drafter, max_draft=4)
    assert launch.speculative is not None
    assert launch.speculative["num_speculative_tokens"] == 4
    assert "num_speculative_tokens_per_batch_size" not in launch.speculative
    assert planned(target, python, drafter=drafter, max_draft=0).speculative is None


def test_nothing_is_exported_for_a_command_that_is_refused(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "prepare_drafter", lambda *a, **k: pytest.fail("exported"))
    with pytest.raises(OptionError):
        planned(target, tmp_path / "gone", drafter="eagle:head")
