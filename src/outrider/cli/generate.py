"""`outrider generate`: write the answer to one prompt."""

from __future__ import annotations

import json

import typer

from outrider.cli import options as cli
from outrider.cli.asked import read_asked
from outrider.cli.chatter import chatter
from outrider.cli.compare import check_comparable, compare_with_plain, warm_up
from outrider.cli.explain import explain as explain_choices
from outrider.cli.grammars import read_grammar
from outrider.cli.job import Job
from outrider.cli.report import document, summary
from outrider.cli.screen import show, show_explanation
from outrider.errors import OptionError


def generate(
    ctx: typer.Context,
    prompt: cli.PromptArgument = None,
    input: cli.InputOption = None,
    language: cli.LanguageOption = None,
    task: cli.TaskOption = None,
    target: cli.TargetOption = cli.DEFAULT_TARGET,
    drafter: cli.DraftersOption = cli.DEFAULT_DRAFTER,
    max_draft: cli.MaxDraftOption = None,
    rule: cli.RuleOption = None,
    lossy: cli.LossyOption = None,
    temperature: cli.TemperatureOption = None,
    top_k: cli.TopKOption = None,
    top_p: cli.TopPOption = None,
    min_p: cli.MinPOption = None,
    repetition_penalty: cli.RepetitionOption = None,
    presence_penalty: cli.PresenceOption = None,
    frequency_penalty: cli.FrequencyOption = None,
    logit_bias: cli.LogitBiasOption = None,
    stop: cli.StopOption = None,
    json_schema: cli.JsonSchemaOption = None,
    regex: cli.RegexOption = None,
    grammar: cli.GrammarOption = None,
    seed: cli.SeedOption = None,
    max_new_tokens: cli.MaxNewTokensOption = None,
    logprobs: cli.LogprobsOption = None,
    raw: cli.RawOption = False,
    dtype: cli.DtypeOption = None,
    device: cli.DeviceOption = None,
    offload_folder: cli.OffloadFolderOption = None,
    numerics: cli.NumericsOption = None,
    compile: cli.CompileOption = None,
    trust_remote_code: cli.TrustOption = False,
    compare: cli.CompareOption = False,
    explain: cli.ExplainOption = False,
    as_json: cli.JsonOption = False,
) -> None:
    """Write the answer to a prompt. Options not given keep the model's own defaults.

    To an encoder-decoder the prompt is what its encoder reads, such as a text to translate. A
    speech model hears a recording: --input FILE.

    Example: outrider generate "Write a haiku about the sea." --compare
    """
    import outrider

    if logprobs is not None and not as_json:
        raise OptionError("--logprobs is shown by --json only: give both")
    loading = cli.loading(ctx.params)
    if lossy is not None and compare:
        raise OptionError("--compare expects equal tokens, and --lossy gives that up: leave one")
    sampling = cli.given(ctx.params, cli.SAMPLING)
    if logit_bias:
        sampling["logit_bias"] = cli.parse_logit_bias(logit_bias)
    held_to = read_grammar(json_schema, regex, grammar)
    if held_to is not None:
        sampling["grammar"] = held_to
    speech = cli.given(ctx.params, cli.SPEECH)
    asked = read_asked(prompt, input, target, trust_remote_code=trust_remote_code)
    with chatter():
        decoder = outrider.load(target, **loading)
        job = Job(decoder, asked, sampling, is_raw=raw, speech=speech)
        if compare:
            check_comparable(job, rule)
            warm_up(job)
        result = job.result() if as_json else show(job.stream(), decoder.tokenizer)
        comparison = compare_with_plain(job, result) if compare else None
    explanation = explain_choices(decoder.engine, result.stats) if explain else None
    if as_json:
        typer.echo(json.dumps(document(result, comparison, explanation), allow_nan=False))
    else:
        typer.echo("\n".join(summary(result.stats, comparison)), err=True)
        if explanation is not None:
            show_explanation(explanation)
    if comparison is not None and not comparison.identical:
        raise typer.Exit(1)
