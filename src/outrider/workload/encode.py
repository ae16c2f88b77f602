"""The ids that the prompts of a workload stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.prompts import encode_prompt
from outrider.workload.files import WorkloadPrompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def encode_workload_prompt(
    prompt: WorkloadPrompt, tokenizer: PreTrainedTokenizerBase | None
) -> tuple[int, ...]:
    """Return the ids of a prompt, a text through the chat template if there is one.

    Raises PromptError.
    """
    template = getattr(tokenizer, "chat_template", None)
    is_chat = isinstance(prompt.prompt, str) and template is not None
    return encode_prompt(prompt.prompt, tokenizer, chat=is_chat)
