from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_decoder import ROUNDS, FakeDecoder, FakeTokenizer
from typer.testing import CliRunner, Result

import outrider
from outrider.cli.main import app
from outrider.cli.options import LOADING, SAMPLING
from outrider.errors import DrafterWarning, LoadError, OptionError
from outrider.sampling.params import SamplingParams

TEXT = "Ahoy there, sailor!\n  Fair winds"
SUMMARY = "6 tokens in 1.50 s, 4.0 tokens/s\n" + (
    "acceptance length 2.00, 75% of 4 drafted tokens accepted\n"
)
Command = Callable[..., Result]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    return []


@pytest.fixture
def decoder() -> FakeDecoder:
    return FakeDecoder()


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, decoder: FakeDecoder, loads: list[dict[str, Any]]
) -> Command:
    def load(target: str, **options: Any) -> FakeDecoder:
        loads.append({"target": target, **options})
        return decoder

    monkeypatch.setitem(outrider.__dict__, "load", load)

    def command(*arguments: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(app, ["generate", *arguments], input=stdin)

    return command


def test_the_text_alone_goes_to_stdout_and_its_cost_to_stderr(run: Command) -> None:
    result = run("Hello")
    assert result.exit_code == 0
    assert result.stdout == TEXT + "\n"
    assert result.stderr == SUMMARY


def test_options_that_are_not_given_are_not_passed_on(
    run: Command, decoder: FakeDecoder, loads: list[dict[str, Any]]
) -> None:
    run("Hello")
    assert decoder.calls == [{"prompt": "Hello", "chat": True, "plain": False}]
    defaults = {"target": "smollm2-135m", "drafter": "suffix", "trust_remote_code": False}
    assert loads == [defaults]


def test_every_option_reaches_the_library_under_its_own_name(
    run: Command, decoder: FakeDecoder, loads: list[dict[str, Any]]
) -> None:
    sampling = {
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
        "presence_penalty": -0.5,
        "frequency_penalty": 0.25,
        "seed": 0,
        "max_new_tokens": 12,
        "logprobs": 0,
    }
    loading = {
        "drafter": "model:a/b",
        "max_draft": 4,
        "rule": "block",
        "dtype": "float32",
        "device": "auto",
        "offload_folder": "/tmp/weights",
        "numerics": "invariant",
    }
    arguments = [
        f"--{name.replace('_', '-')}={value}" for name, value in (sampling | loading).items()
    ]
    lists = ["--logit-bias=5=-100", "--logit-bias=6=0.5", "--stop=\n", "--stop= ha"]
    flags = ["--trust-remote-code", "--json", "--raw", "--target=t", "--no-compile"]
    assert run("Hello", *arguments, *lists, *flags).exit_code == 0
    assert loads == [{"target": "t", "trust_remote_code": True, "compile": False, **loading}]
    asked = {"logit_bias": {5: -100.0, 6: 0.5}, "stop": ["\n", " ha"], **sampling}
    assert decoder.calls == [{"prompt": "Hello", "chat": False, "plain": False, **asked}]
    assert set(loads[0]) == {"target", *LOADING} - {"lossy"}  # which goes with no other rule
    assert set(asked) == {"logit_bias", *SAMPLING}
    SamplingParams().with_options(**asked)


@pytest.mark.parametrize(
    ("argument", "value"), [("auto", "auto"), ("0", 0), ("12", 12), ("-1", -1)]
)
def test_the_draft_limit_is_auto_or_a_number(
    run: Command, loads: list[dict[str, Any]], argument: str, value: object
) -> None:
    assert run("Hello", f"--max-draft={argument}").exit_code == 0
    assert loads[0]["max_draft"] == value


def test_compiling_is_left_to_the_library_unless_it_is_chosen(
    run: Command, loads: list[dict[str, Any]]
) -> None:
    for arguments in ([], ["--compile"], ["--no-compile"]):
        assert run("Hello", *arguments).exit_code == 0
    assert [loaded.get("compile") for loaded in loads] == [None, True, False]


@pytest.mark.parametrize(
    ("arguments", "has_template", "is_chat"),
    [([], True, True), (["--raw"], True, False), ([], False, False)],
)
def test_the_chat_template_is_used_if_there_is_one_and_raw_is_not_asked(
    run: Command, decoder: FakeDecoder, arguments: list[str], has_template: bool, is_chat: bool
) -> None:
    decoder.tokenizer = FakeTokenizer(has_template=has_template)
    run("Hello", *arguments)
    assert decoder.calls[0]["chat"] is is_chat


def test_a_dash_reads_the_prompt_from_stdin_without_its_last_line_break(
    run: Command, decoder: FakeDecoder
) -> None:
    run("-", stdin="two\nlines\n\n")
    assert decoder.calls[0]["prompt"] == "two\nlines\n"


@pytest.mark.parametrize(("prompt", "stdin"), [("-", b"\xff\xfe"), ("caf\udce9", b"")])
def test_a_prompt_that_is_no_text_is_a_wrong_request(
    run: Command, loads: list[dict[str, Any]], prompt: str, stdin: bytes
) -> None:
    result = run(prompt, stdin=stdin)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: the prompt is not text in UTF-8: ")
    assert not loads


def test_json_is_one_document_with_all_there_is_to_know(run: Command) -> None:
    result = run("Hello", "--json", "--logprobs=1", "--seed=3")
    assert result.exit_code == 0 and result.stderr == ""
    document = json.loads(result.stdout)
    assert result.stdout == json.dumps(document) + "\n"
    stats = document.pop("stats")
    assert document == {
        "text": TEXT,
        "token_ids": [0, 1, 2, 3, 4, 5],
        "finish_reason": "stop",
        "seed": 3,
        "logprobs": [{"chosen": -0.5, "top": [[token, -0.5]]} for token in range(6)],
    }
    assert (stats["rounds"], stats["proposed"], stats["accepted"]) == (3, 4, 3)
    assert (stats["acceptance_length"], stats["tokens_per_second"]) == (2.0, 4.0)


def test_compare_repeats_the_request_plainly_with_the_seed_it_had(
    run: Command, decoder: FakeDecoder
) -> None:
    result = run("Hello", "--compare", "--top-k=5")
    assert result.exit_code == 0
    assert result.stdout == TEXT + "\n"
    assert result.stderr == (
        SUMMARY + "plain decoding 2.0 tokens/s, speedup 2.00x, identical: yes\n"
    )
    warm_up, speculative, plain = decoder.calls
    assert warm_up["max_new_tokens"] == 4
    assert speculative == {"prompt": "Hello", "chat": True, "plain": False, "top_k": 5}
    assert plain == {"prompt": "Hello", "chat": True, "plain": True, "top_k": 5, "seed": 7}


@pytest.mark.parametrize(
    ("plain", "difference"),
    [
        ((((0, "plain"),), ((1, "plain"),), ((5, "plain"),)), "token 2 is 2, plain decoding has 5"),
        (ROUNDS[:2], "6 tokens, plain decoding has 4"),
        ((*ROUNDS, ((0, "plain"),)), "6 tokens, plain decoding has 7"),
    ],
)
def test_compare_fails_and_says_where_tokens_differ_over_the_whole_length(
    run: Command, decoder: FakeDecoder, plain: Any, difference: str
) -> None:
    """SERVE-7: equal so far is not equal."""
    decoder.plain_rounds = plain
    result = run("Hello", "--compare")
    assert result.exit_code == 1
    assert result.stderr.endswith(f"identical: no ({difference})\n")
    result = run("Hello", "--compare", "--json")
    assert result.exit_code == 1
    compared = json.loads(result.stdout)["compare"]
    assert (compared["identical"], compared["difference"]) == (False, difference)


def test_compare_in_json_is_plain_speed_speedup_and_equality(run: Command) -> None:
    document = json.loads(run("Hello", "--compare", "--json").stdout)
    assert document["compare"] == {
        "plain_tokens_per_second": 2.0,
        "speedup": 2.0,
        "identical": True,
    }


def test_compare_is_refused_where_equal_tokens_are_not_promised(
    run: Command, decoder: FakeDecoder
) -> None:
    result = run("Hello", "--compare", "--rule=block", "--temperature=0.5")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: --compare with temperature 0.5 needs --rule match: "
        "block keeps the law of the text, not its tokens\n"
    )
    assert not decoder.calls
    assert run("Hello", "--compare", "--rule=block", "--temperature=0").exit_code == 0
    assert run("Hello", "--compare", "--rule=match", "--temperature=0.5").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--logit-bias=5"], "--logit-bias '5' is not ID=BIAS, e.g. 42=-1.5"),
        (["--logit-bias=a=1"], "--logit-bias 'a=1' is not ID=BIAS, e.g. 42=-1.5"),
        (["--logit-bias=5=x"], "--logit-bias '5=x' is not ID=BIAS, e.g. 42=-1.5"),
        (["--logit-bias=5=1", "--logit-bias=5=2"], "--logit-bias is given twice for token 5"),
        (["--max-draft=many"], "--max-draft 'many' is neither auto nor a number of tokens"),
        (["--max-draft=1.5"], "--max-draft '1.5' is neither auto nor a number of tokens"),
        (["--logprobs=2"], "--logprobs is shown by --json only: give both"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_two(
    run: Command, loads: list[dict[str, Any]], arguments: list[str], message: str
) -> None:
    result = run("Hello", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"error: {message}\n"
    assert not loads


@pytest.mark.parametrize(
    "arguments", [["--rule=best"], ["--top-k=many"], ["--nonsense"], ["--numerics="], ["a", "b"]]
)
def test_a_usage_error_is_exit_code_two(run: Command, arguments: list[str]) -> None:
    result = run("Hello", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (LoadError("no such model"), 1, "error: no such model\n"),
        (OptionError("top_k is -1"), 2, "error: top_k is -1\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_failure_midway_is_one_line_and_its_exit_code(
    run: Command,
    decoder: FakeDecoder,
    arguments: list[str],
    error: BaseException,
    code: int,
    message: str,
) -> None:
    decoder.error = error
    result = run("Hello", *arguments)
    assert (result.exit_code, result.stderr) == (code, message)
    assert result.stdout == ("" if arguments else "Ahoy")


def test_an_interrupted_stream_is_closed(run: Command, decoder: FakeDecoder) -> None:
    decoder.error = KeyboardInterrupt()
    run("Hello")
    assert decoder.streams[0].is_closed


def test_a_warning_about_the_drafter_is_one_line(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = outrider.__dict__["load"]

    def load(target: str, **options: Any) -> FakeDecoder:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("the drafter was dropped", DrafterWarning, stacklevel=1)
        decoder: FakeDecoder = inner(target, **options)
        return decoder

    monkeypatch.setitem(outrider.__dict__, "load", load)
    assert run("Hello").stderr == "warning: the drafter was dropped\n" + SUMMARY


def test_a_closed_pipe_is_quiet(tmp_path: Path) -> None:
    here = Path(__file__).parent
    script = (
        "import outrider, fake_decoder\n"
        "outrider.__dict__['load'] = lambda *a, **k: fake_decoder.FakeDecoder()\n"
        "from outrider.cli.main import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", script, "generate", "Hello"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=here
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        stderr = process.stderr.read().decode()
    assert (process.returncode, stderr) == (1, "")
