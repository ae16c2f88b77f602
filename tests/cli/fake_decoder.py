"""A decoder without a model: it answers with given words, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from outrider.engine.result import Collector, Result
from outrider.engine.stats import Stats
from outrider.sampling.params import SamplingParams
from outrider.types import Chunk, Source, Token, TokenLogprobs

WORDS = ["Ahoy", " there", ", sailor", "!\n", "  Fair", " winds", "\x1b[31m", "."]
ROUNDS: tuple[tuple[tuple[int, Source], ...], ...] = (
    ((0, "plain"),),
    ((1, "accepted"), (2, "accepted"), (3, "bonus")),
    ((4, "accepted"), (5, "recovered")),
)


class FakeTokenizer:
    """Id i is `WORDS[i]`."""

    def __init__(self, *, has_template: bool = True) -> None:
        self.chat_template = "a template" if has_template else None

    def decode(self, ids: list[int], **options: Any) -> str:
        return "".join(WORDS[token] for token in ids)


class FakeStream:
    """The chunks of the rounds; may raise an error after the first."""

    def __init__(self, decoder: FakeDecoder, options: dict[str, Any]) -> None:
        self._decoder = decoder
        self._options = options
        self._collector = Collector((1, 2), options.get("seed", 7))
        self._chunks = self._run()
        self.is_closed = False

    def _run(self) -> Iterator[Chunk]:
        top = self._options.get("logprobs")
        for index, round_ in enumerate(self._decoder.rounds):
            if index and self._decoder.error is not None:
                raise self._decoder.error
            tokens = tuple(
                Token(i, source, None if top is None else TokenLogprobs(-0.5, ((i, -0.5),) * top))
                for i, source in round_
            )
            chunk = Chunk("".join(WORDS[token.id] for token in tokens), tokens)
            self._collector.add(chunk)
            yield chunk

    def __iter__(self) -> Iterator[Chunk]:
        return self._chunks

    @property
    def result(self) -> Result:
        rounds = self._decoder.rounds
        sources = [source for round_ in rounds for _, source in round_]
        stats = Stats(
            prompt_tokens=2,
            tokens=len(sources),
            rounds=len(rounds),
            proposed=0 if self._decoder.is_plain else 4,
            accepted=sources.count("accepted"),
            score_s=3.0 if self._decoder.is_plain else 1.5,
            **self._decoder.counters,
        )
        return self._collector.result("stop", stats)

    def close(self) -> None:
        self.is_closed = True


@dataclass
class FakeDecoder:
    """Stands in for `outrider.Decoder`; `plain_rounds` are what it says without a drafter."""

    rounds: tuple[tuple[tuple[int, Source], ...], ...] = ROUNDS
    plain_rounds: tuple[tuple[tuple[int, Source], ...], ...] = tuple(
        ((token, "plain"),) for round_ in ROUNDS for token, _ in round_
    )
    tokenizer: FakeTokenizer = field(default_factory=FakeTokenizer)
    default_params: SamplingParams = field(default_factory=SamplingParams)
    error: BaseException | None = None
    is_plain: bool = False
    engine: Any = None
    counters: dict[str, Any] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    streams: list[FakeStream] = field(default_factory=list)

    def stream(self, prompt: str, *, chat: bool = False, **options: Any) -> FakeStream:
        self.calls.append({"prompt": prompt, "chat": chat, "plain": self.is_plain, **options})
        self.streams.append(FakeStream(self, options))
        return self.streams[-1]

    def generate(self, prompt: str, *, chat: bool = False, **options: Any) -> Result:
        stream = self.stream(prompt, chat=chat, **options)
        for _ in stream:
            pass
        return stream.result

    def without_drafter(self) -> FakeDecoder:
        return FakeDecoder(
            rounds=self.plain_rounds,
            tokenizer=self.tokenizer,
            is_plain=True,
            calls=self.calls,
            streams=self.streams,
        )
