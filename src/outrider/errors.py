"""Every error a user can meet: one base class and a few leaves.

`exit_code` is what the command line leaves with: 2 when the request itself was wrong, 1 when a
correct request could not be carried out.
"""


class OutriderError(Exception):
    """Base of all errors outrider raises on purpose; its text is one line meant for the user."""

    exit_code = 1


class OptionError(OutriderError, ValueError):
    """An unknown option, or a value out of its range; names the option, the value and the range."""

    exit_code = 2


class PromptError(OutriderError, ValueError):
    """A prompt that cannot be decoded from: empty, too long, or with ids outside the vocabulary."""

    exit_code = 2


class LoadError(OutriderError):
    """A model, tokenizer or file that is missing, damaged or of an unknown kind."""


class UnsupportedModelError(OutriderError):
    """A model outrider cannot drive without risking wrong text; names the layer or feature."""


class CompilerError(OutriderError):
    """A pass that cannot be compiled here: no working compiler, or a model it cannot trace."""


class VocabularyMismatchError(OutriderError):
    """A drafter whose token ids mean something else than the target's; names the first such id."""


class NumericsError(OutriderError):
    """Logits that are not numbers, or leave no token to choose; names the request and position."""


class TrainingError(OutriderError):
    """A training run that cannot go on: numbers that are none, or a run that is another's."""


class DrafterWarning(UserWarning):
    """A drafter raised and was dropped; the request goes on with plain decoding."""


class QueueFullError(OutriderError):
    """A request that came while as many were waiting as may."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        """`retry_after_s` estimates in how many seconds there will be room."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DrainingError(OutriderError):
    """A request that came after the last: those that are there are finished, and no more taken."""
