"""From what a user asks of a speech model to requests: a recording, and how its text begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from outrider.engine.request import Request
from outrider.errors import PromptError
from outrider.speech.sound import samples_of
from outrider.speech.start import SpeechStart
from outrider.targets.base import Target
from outrider.targets.speech import SpeechTarget
from outrider.types import Recording


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    """What a user asks of speech; None leaves it to the model."""

    language: str | None = None
    task: str | None = None

    @property
    def are_given(self) -> bool:
        """Whether anything is asked."""
        return self != SpeechOptions()

    def __str__(self) -> str:
        """Name the first that is given."""
        given = self.language is not None
        return f"language is {self.language!r}" if given else f"task is {self.task!r}"


class Listener:
    """Makes requests of recordings for one speech model."""

    def __init__(self, target: SpeechTarget) -> None:
        self._target = target
        self._start = SpeechStart.of(target.model, target.prompt_ids[0])
        self._languages = tuple(self._start.languages.values())

    @classmethod
    def of(cls, target: Target) -> Listener | None:
        """Return one for a target, None if that is no speech model."""
        return cls(target) if isinstance(target, SpeechTarget) else None

    def recording(self, audio: object, speech: SpeechOptions, *, chat: bool) -> Recording:
        """Return what a user passed as a recording, with what is asked of it.

        Raises PromptError for what is none, and OptionError for a language or task that the model
        does not have.
        """
        if chat:
            raise PromptError("chat=True needs text or messages; the model hears recordings")
        self._start.ids(speech.language, speech.task)  # refuses what it does not have
        hearing = self._target.hearing
        samples = samples_of(audio, hearing.rate, hearing.most_samples / hearing.rate)
        return Recording(samples, speech.language, speech.task)

    def opening(self, recording: Recording) -> tuple[int, ...]:
        """Return what a text begins with; any language stands in for one that is yet to be heard.

        `settled` puts the right one there.
        """
        return self._with_language(recording, self._languages[:1])

    def settled(self, requests: Sequence[Request]) -> list[Request]:
        """Return requests that begin in the language that is spoken, where that is left to hear.

        Each recording is heard for it once.
        """
        begun: dict[Recording, tuple[int, ...]] = {}
        found = []
        for request in requests:
            recording = request.input
            assert isinstance(recording, Recording)
            if recording not in begun:
                begun[recording] = self._with_language(recording, self._languages)
            found.append(replace(request, prompt_ids=begun[recording]))
        return found

    def _with_language(self, recording: Recording, choices: Sequence[int]) -> tuple[int, ...]:
        """Return what a text begins with, its language the likeliest of some."""
        ids = self._start.ids(recording.language, recording.task)
        if None not in ids:
            return tuple(token for token in ids if token is not None)
        (only, *others) = choices
        spoken = self._target.detect_language(recording, choices) if others else only
        return tuple(spoken if token is None else token for token in ids)
