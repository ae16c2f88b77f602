"""One request on the command line: what is asked, of which decoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.decoder import Decoder
    from outrider.engine.result import Result
    from outrider.stream import Stream


@dataclass(frozen=True, slots=True)
class Job:
    """A prompt with the sampling options the user gave, and the decoder that answers it."""

    decoder: Decoder
    prompt: str | Path
    options: Mapping[str, Any]
    is_raw: bool = False
    speech: Mapping[str, Any] = field(default_factory=dict)
    """The language and the task, where they are asked of a speech model."""

    @property
    def is_chat(self) -> bool:
        """Whether the prompt goes through the chat template."""
        template = getattr(self.decoder.tokenizer, "chat_template", None)
        return isinstance(self.prompt, str) and template is not None and not self.is_raw

    def stream(self) -> Stream:
        """Start answering, chunk by chunk."""
        return self.decoder.stream(self.prompt, chat=self.is_chat, **self.speech, **self.options)

    def result(self) -> Result:
        """Answer as a whole."""
        return self.decoder.generate(self.prompt, chat=self.is_chat, **self.speech, **self.options)

    def with_options(self, **options: Any) -> Job:
        """Return the same job with some options changed."""
        return replace(self, options={**self.options, **options})

    def without_drafter(self) -> Job:
        """Return the same job for plain decoding."""
        return replace(self, decoder=self.decoder.without_drafter())
