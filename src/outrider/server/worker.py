"""The thread that has the model: it loads it, steps the scheduler, and tells what comes of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from outrider.errors import OutriderError
from outrider.server.deltas import Ended, Word, words
from outrider.server.jobs import Preparer
from outrider.server.settings import ServerSettings

if TYPE_CHECKING:
    from outrider.decoder import Decoder
    from outrider.engine.scheduler import Scheduler

_LOGGER = logging.getLogger("outrider.server")
_WARM_UP_TOKENS = 8

State: TypeAlias = Literal["loading", "ready", "draining", "stopped", "failed"]


class Worker:
    """Runs one engine in a thread of its own; nothing else touches the model.

    `listener` is called in that thread, with the words of each step, and with [] when the state
    has changed. Once the state is "stopped" or "failed" there are no more words.
    """

    def __init__(self, load: Callable[[], Decoder], settings: ServerSettings) -> None:
        self._load = load
        self._settings = settings
        self._listener: Callable[[list[Word]], None] = lambda words: None
        self._thread = threading.Thread(target=self._run, name="outrider-worker", daemon=True)
        self._must_stop = False
        self._preparer: Preparer | None = None
        self._scheduler: Scheduler | None = None
        self.state: State = "loading"
        self.error: BaseException | None = None
        """What it failed with."""

    @property
    def is_loaded(self) -> bool:
        """Whether there are a preparer and a scheduler."""
        return self._scheduler is not None

    @property
    def preparer(self) -> Preparer:
        """What makes requests for the engine; once it is loaded."""
        assert self._preparer is not None, "not loaded yet"
        return self._preparer

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler; once the engine is loaded."""
        assert self._scheduler is not None, "not loaded yet"
        return self._scheduler

    def start(self, listener: Callable[[list[Word]], None]) -> None:
        """Begin to load."""
        self._listener = listener
        self._thread.start()

    def drain(self) -> None:
        """Take no more requests, and stop once those that are there are finished."""
        if self.state == "ready":
            self.state = "draining"
        if self._scheduler is None:
            self._must_stop = True
        else:
            self._scheduler.drain()

    def stop(self) -> None:
        """End all work before the next round; the thread ends soon after."""
        self._must_stop = True
        self.drain()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end; returns whether it did."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            decoder = self._load()
            decoder.require_text()
            self._preparer = Preparer(decoder, self._settings)
            self._preparer.warm_up()
            self._warm_up(decoder)
            self._scheduler = decoder.engine.scheduler(**self._settings.scheduling)
            if self._preparer.lossy is not None:
                _LOGGER.warning(
                    "LOSSY (%s): answers may differ from the target's own", self._preparer.lossy
                )
            if not self._must_stop:
                self.state = "ready"
                self._listener([])
            self._step()
            self._scheduler.close()
            self.state = "stopped"
        except BaseException as error:
            # Whatever it is, those who wait must hear of it.
            self.error = error
            self.state = "failed"
            is_running = self._scheduler is not None
            _LOGGER.error("the engine failed: %s", error, exc_info=error if is_running else None)
        self._listener([])

    def _step(self) -> None:
        """Step until told to stop, or nothing is left to do while draining."""
        scheduler = self.scheduler
        while not self._must_stop:
            if scheduler.wait():
                told = words(scheduler.step())
                if told:
                    _log_faults(told)
                    self._listener(told)
            elif scheduler.is_draining:
                return

    def _warm_up(self, decoder: Decoder) -> None:
        """Answer a short prompt, so that the first client does not wait for what happens once."""
        prompt = [0] * min(_WARM_UP_TOKENS, decoder.engine.target.max_positions - 1)
        decoder.generate(
            prompt,
            prediction=prompt,
            params=decoder.default_params.with_options(min_new_tokens=0, n=1, stop=()),
            max_new_tokens=_WARM_UP_TOKENS,
            ignore_eos=True,
        )


def _log_faults(told: Sequence[Word]) -> None:
    """Log what went wrong with requests by no fault of theirs: clients learn no more of it."""
    for word in told:
        error = word.error if isinstance(word, Ended) else None
        if error is not None and not isinstance(error, OutriderError):
            _LOGGER.error("%s failed", word.ticket.request.name, exc_info=error)
