"""What the texts of Whisper begin with: a start, a language, a task, and that no times are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from transformers import PreTrainedModel
from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

from outrider.errors import OptionError

Task: TypeAlias = Literal["transcribe", "translate"]


@dataclass(frozen=True, slots=True)
class SpeechStart:
    """The ids that a model's generation config begins texts with, as its `generate` reads it."""

    model: str
    start: int
    forced: tuple[int | None, ...]
    """What follows where neither a language nor a task is asked for; None: the language spoken."""
    languages: Mapping[str, int]
    """By their codes, such as "de"; empty for a model of one language."""
    tasks: Mapping[str, int]
    is_multilingual: bool
    no_times: int | None
    language: str | None = None
    """What is asked for by default."""
    task: str | None = None

    @classmethod
    def of(cls, model: PreTrainedModel, start: int) -> SpeechStart:
        """Read the generation config of a model whose texts start with an id."""
        config: Any = model.generation_config
        forced: Any = getattr(config, "forced_decoder_ids", None)
        if forced is None:
            forced = getattr(model.config, "forced_decoder_ids", None)
        languages: Mapping[str, int] = getattr(config, "lang_to_id", None) or {}
        return cls(
            model=getattr(model.config, "_name_or_path", "") or type(model).__name__,
            start=start,
            forced=_in_order(forced or ()),
            languages={name.strip("<|>"): token for name, token in languages.items()},
            tasks=getattr(config, "task_to_id", None) or {},
            is_multilingual=getattr(config, "is_multilingual", True) is not False,
            no_times=getattr(config, "no_timestamps_token_id", None),
            language=getattr(config, "language", None),
            task=getattr(config, "task", None),
        )

    def ids(self, language: str | None, task: str | None) -> tuple[int | None, ...]:
        """Return what a text begins with; None stands for the language, if it is to be heard.

        Raises OptionError for a language or a task that the model does not have.
        """
        self._check(language, task)
        language = self.language if language is None else language
        task = self.task if task is None else task
        found: list[int | None] = [self.start]
        if language is None and task is None:
            found += self.forced
        if language is not None:
            found[1:2] = [self._language_id(language)]
        is_heard = language is None and bool(self.languages) and found[1:2] in ([], [None])
        found = [token for token in found if token is not None]
        if is_heard:
            found.insert(1, None)
        if task is not None:
            found.append(self._task_id(task))
        elif language is not None and self.tasks and not {*found} & {*self.tasks.values()}:
            found.append(self._task_id("transcribe"))
        if self.no_times is not None and found[-1] != self.no_times:
            found.append(self.no_times)
        return tuple(found)

    def _check(self, language: str | None, task: str | None) -> None:
        """Refuse what is asked of a model that has no choice."""
        for name, value, choices in (
            ("language", language, self.languages),
            ("task", task, self.tasks),
        ):
            if value is not None and not (self.is_multilingual and choices):
                raise OptionError(f"{name} is {value!r}: {self.model} leaves no choice of it")

    def _language_id(self, language: str) -> int:
        name = language.lower().strip("<|>")
        code = TO_LANGUAGE_CODE.get(name, name)
        if code not in self.languages:
            known = ", ".join(self.languages)
            raise OptionError(f"language is {language!r}: expected one of {known}")
        return self.languages[code]

    def _task_id(self, task: str) -> int:
        if task not in get_args(Task) or task not in self.tasks:
            known = " or ".join(name for name in get_args(Task) if name in self.tasks)
            raise OptionError(f"task is {task!r}: expected {known}")
        return self.tasks[task]


def _in_order(forced: Any) -> tuple[int | None, ...]:
    """Return the ids that pairs of a place and an id put at places 1, 2, ... without a gap."""
    places = dict(forced)
    if any(place not in places for place in range(1, 1 + len(places))):
        raise OptionError(
            f"generation config: forced_decoder_ids is {forced!r}: expected an id for each place "
            "from 1 on"
        )
    return tuple(places[place] for place in range(1, 1 + len(places)))
