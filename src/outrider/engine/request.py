"""A request: what is asked for, and whether a target can run it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from outrider.engine.detokenize import Detokenizer
from outrider.engine.scoring import PromptScores
from outrider.engine.session import Session
from outrider.engine.stopping import Stopper
from outrider.errors import OptionError, PromptError
from outrider.sampling.params import SamplingParams
from outrider.sampling.pipeline import LogitsPipeline
from outrider.targets.base import Target
from outrider.types import EncoderInput, Rule


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What is asked for: a prompt as ids, the options, and a seed already chosen.

    The fields from `speculate` to `rule` are the request's own word on speculation, within what its
    engine does.
    """

    prompt_ids: tuple[int, ...]
    """What is continued; for a target that reads inputs, its `prompt_ids` and what else begins
    the text."""
    params: SamplingParams
    seed: int
    eos_token_ids: tuple[int, ...] = ()
    tokenizer: PreTrainedTokenizerBase | None = None
    prediction_ids: tuple[int, ...] | None = None
    session: Session | None = None
    scores: PromptScores | None = None
    """Where the log-probabilities of the prompt's tokens go, if they are wanted."""
    name: str = "request"
    speculate: bool = True
    """False: plain decoding, whatever the engine does for others."""
    max_draft: int | None = None
    """Most tokens drafted for it in a round; the engine may draft fewer, and never drafts more."""
    drafters: tuple[str, ...] | None = None
    """The engine's drafters that may draft for it, by their names there; None for all."""
    rule: Rule | None = None
    """The rule that verifies its drafts, the engine's if None."""
    input: EncoderInput | None = None
    """What the encoder reads, for a target that has one."""


def check_request(request: Request, target: Target) -> None:
    """Raise PromptError or OptionError for a request the target cannot run; does no work."""
    check_prompt(request.prompt_ids, target)
    check_input(request, target)
    build_pipeline(request, target)
    build_stopper(request, target)
    check_scores(request, target)
    for token in request.prediction_ids or ():
        if not isinstance(token, int) or not 0 <= token < target.vocab_size:
            allowed = f"ids from 0 to {target.vocab_size - 1}, the target's vocabulary"
            raise OptionError(f"prediction holds {token!r}: expected {allowed}")


def check_scores(request: Request, target: Target) -> None:
    """Raise OptionError if the prompt's tokens are to be scored, and the target cannot do that."""
    if request.scores is not None and not target.scores_prompts:
        raise OptionError(f"scores of a prompt are wanted; {type(target).__name__} gives none")


def check_input(request: Request, target: Target) -> None:
    """Raise PromptError for an input the target cannot read, and OptionError for a session of one
    that reads inputs.
    """
    if request.input is not None:
        target.check_input(request.input)
    elif target.reads_input:
        raise PromptError("the target has an encoder, and there is no input for it to read")
    if target.reads_input and request.session is not None:
        raise OptionError("session is given; a target that reads inputs begins each text anew")


def check_prompt(prompt_ids: Sequence[int], target: Target) -> None:
    """Raise PromptError for a prompt the target cannot continue."""
    if not prompt_ids:
        raise PromptError("the prompt is empty: there is nothing to continue")
    if len(prompt_ids) >= target.max_positions:
        raise PromptError(
            f"the prompt has {len(prompt_ids)} tokens; the model holds {target.max_positions} "
            "in all, so at least one must be left for the answer"
        )
    for token in prompt_ids:
        if not 0 <= token < target.vocab_size:
            raise PromptError(
                f"prompt id {token} is outside the vocabulary 0..{target.vocab_size - 1}"
            )


def most_tokens(request: Request, target: Target) -> int:
    """Return how many tokens a request can ever hold: its prompt, and all it may write."""
    return min(len(request.prompt_ids) + request.params.max_new_tokens, target.max_positions)


def input_length(request: Request, target: Target) -> int:
    """Return how many positions the target's cross-attention has of a request's input."""
    return 0 if request.input is None else target.input_length(request.input)


def most_read(requests: Iterable[Request], target: Target) -> int:
    """Return how many positions the longest of the requests' inputs has."""
    return max((input_length(request, target) for request in requests), default=0)


def build_pipeline(request: Request, target: Target) -> LogitsPipeline:
    """Return what turns the target's logits into the request's scores; raises OptionError."""
    return LogitsPipeline(
        request.params, request.prompt_ids, request.eos_token_ids, target.vocab_size, target.device
    )


def build_stopper(request: Request, target: Target) -> Stopper:
    """Return what judges the request's tokens as they come; raises OptionError."""
    return Stopper(
        request.params,
        request.eos_token_ids,
        prompt_ids=request.prompt_ids,
        max_new_tokens=most_tokens(request, target) - len(request.prompt_ids),
        detokenizer=None if request.tokenizer is None else Detokenizer(request.tokenizer),
    )
