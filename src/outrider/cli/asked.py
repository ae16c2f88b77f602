"""What is asked on the command line: a prompt, or a file of text or, of a speech model, sound."""

from __future__ import annotations

from pathlib import Path

from outrider.cli import options as cli
from outrider.errors import OptionError


def read_asked(
    prompt: str | None, file: Path | None, target: str, *, trust_remote_code: bool
) -> str | Path:
    """Return the prompt, or the WAV file that a speech model is to hear.

    Raises what `cli.read_prompt` and `read_wav` do, OptionError for sound that a model of text
    would be given, and LoadError for an unknown model.
    """
    if file is None or prompt is not None or not file.is_file():
        return cli.read_prompt(prompt, file)
    from outrider.speech.wav import is_wav, read_wav
    from outrider.targets.capabilities import reads_audio
    from outrider.targets.loading import load_config

    if reads_audio(load_config(target, trust_remote_code=trust_remote_code)):
        read_wav(file)  # what cannot be heard is refused before a model is read
        return file
    if is_wav(file):
        raise OptionError(f"--input {str(file)!r} is a recording; {target} reads text")
    return cli.read_prompt(None, file)
