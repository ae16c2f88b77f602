"""OpenAI's objects for answers: whole, and in the chunks of a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from outrider import __version__
from outrider.server.answers import Answer, Part
from outrider.server.jobs import Job
from outrider.server.logprobs import chat_logprobs, completion_logprobs, prompt_logprobs
from outrider.server.token_texts import TokenTexts
from outrider.server.usage import lossy_field, usage

_FINGERPRINT = f"outrider-{__version__}"


class Objects(ABC):
    """Writes the answers of one job in the form of one endpoint."""

    prefix: str
    whole_name: str
    chunk_name: str

    def __init__(self, job: Job, texts: TokenTexts, *, name: str, created: int) -> None:
        """`name` tells this job's objects from others'; `created` is in seconds of the epoch."""
        self.job = job
        self.texts = texts
        self._id = f"{self.prefix}-{name}"
        self._created = created
        options = job.body.stream_options
        self.includes_usage = options is not None and bool(options.include_usage)

    @property
    def wants_logprobs(self) -> bool:
        """Whether choices carry log-probabilities."""
        return self.job.body.num_logprobs is not None

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """Return the object of a response that is not streamed."""
        choices = [self.choice(index, answer) for index, answer in enumerate(answers)]
        return self._object(self.whole_name, choices) | {"usage": self._usage(answers)}

    def chunk(self, index: int, part: Part) -> dict[str, Any] | None:
        """Return the chunk for what a round adds; None if there is nothing to tell."""
        has_news = part.text or part.finish_reason or part.details or self.wants_logprobs
        if not has_news:
            return None
        chunk = self._chunk([self.delta(index, part)])
        return chunk if part.details is None else chunk | {"speculation": part.details}

    def usage_chunk(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """Return the last chunk, which tells what the answers cost."""
        return self._chunk([]) | {"usage": self._usage(answers)}

    @abstractmethod
    def opening(self, index: int) -> dict[str, Any] | None:
        """Return the chunk that comes before all others of a choice, if there is one."""

    @abstractmethod
    def choice(self, index: int, answer: Answer) -> dict[str, Any]:
        """Return a whole choice."""

    @abstractmethod
    def delta(self, index: int, part: Part) -> dict[str, Any]:
        """Return a choice with what a round adds to it."""

    def _usage(self, answers: Sequence[Answer]) -> dict[str, Any]:
        return usage([answer.usage for answer in answers], self.job.answers_each)

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        chunk = self._object(self.chunk_name, choices)
        return chunk | {"usage": None} if self.includes_usage else chunk

    def _object(self, name: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": name,
            "created": self._created,
            "model": self.job.body.model,
            "system_fingerprint": _FINGERPRINT,
            "choices": choices,
        } | lossy_field(self.job.lossy)


class ChatObjects(Objects):
    """Objects of /v1/chat/completions."""

    prefix = "chatcmpl"
    whole_name = "chat.completion"
    chunk_name = "chat.completion.chunk"

    def opening(self, index: int) -> dict[str, Any] | None:
        """Return the chunk that says who speaks."""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        return self._chunk([choice])

    def choice(self, index: int, answer: Answer) -> dict[str, Any]:
        """Return a whole choice."""
        return {
            "index": index,
            "message": {"role": "assistant", "content": answer.text, "refusal": None},
            "logprobs": self._logprobs(answer.tokens),
            "finish_reason": answer.finish_reason,
        }

    def delta(self, index: int, part: Part) -> dict[str, Any]:
        """Return a choice with what a round adds to it."""
        return {
            "index": index,
            "delta": {"content": part.text} if part.text else {},
            "logprobs": self._logprobs(part.tokens),
            "finish_reason": part.finish_reason,
        }

    def _logprobs(self, tokens: Sequence[Any]) -> dict[str, Any] | None:
        return chat_logprobs(tokens, self.texts) if self.wants_logprobs else None


class CompletionObjects(Objects):
    """Objects of /v1/completions."""

    prefix = "cmpl"
    whole_name = chunk_name = "text_completion"

    def __init__(self, job: Job, texts: TokenTexts, **options: Any) -> None:
        super().__init__(job, texts, **options)
        self._echoes = job.echoes

    def opening(self, index: int) -> dict[str, Any] | None:
        """Return the chunk with the prompt, if it is to be echoed."""
        if not self._echoes:
            return None
        logprobs = self._prompt_logprobs(index)
        return self._chunk([self._choice(index, self._echo(index), logprobs, None)])

    def choice(self, index: int, answer: Answer) -> dict[str, Any]:
        """Return a whole choice."""
        echo = self._echo(index)
        logprobs = self._logprobs(answer.tokens, answer.offsets, len(echo))
        before = self._prompt_logprobs(index)
        if logprobs is not None and before is not None:
            logprobs = {name: before[name] + values for name, values in logprobs.items()}
        return self._choice(index, echo + answer.text, logprobs, answer.finish_reason)

    def delta(self, index: int, part: Part) -> dict[str, Any]:
        """Return a choice with what a round adds to it."""
        logprobs = self._logprobs(part.tokens, part.offsets, len(self._echo(index)))
        return self._choice(index, part.text, logprobs, part.finish_reason)

    def _echo(self, index: int) -> str:
        return self._echoes[index // self.job.answers_each].text if self._echoes else ""

    def _prompt_logprobs(self, index: int) -> dict[str, Any] | None:
        scores = self.job.requests[index].scores
        if scores is None:
            return None
        echo = self._echoes[index // self.job.answers_each]
        return prompt_logprobs(echo, scores.records, self.texts)

    def _logprobs(
        self, tokens: Sequence[Any], offsets: Sequence[int], start: int
    ) -> dict[str, Any] | None:
        if not self.wants_logprobs:
            return None
        return completion_logprobs(tokens, [start + offset for offset in offsets], self.texts)

    def _choice(
        self, index: int, text: str, logprobs: dict[str, Any] | None, reason: str | None
    ) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
