"""Converts a Transformers model to OpenVINO's form, with OpenVINO's own tools."""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from .protocol import describe, take_stdout


def convert(model: str, tokenizer: str, weights: str, out: str) -> None:
    """Convert the folder of a model to a new one; `weights` is "float32" or "int8"."""
    from optimum.exporters.openvino import main_export
    from optimum.intel import OVConfig, OVWeightQuantizationConfig

    options: dict[str, Any] = {"dtype": "fp32"}
    if weights == "int8":
        options = {"quantization_config": OVWeightQuantizationConfig(bits=8, sym=False)}
    with tempfile.TemporaryDirectory() as joined:
        where = _joined(Path(joined), model, tokenizer)
        main_export(
            where,
            output=out,
            task="text-generation-with-past",
            library_name="transformers",
            ov_config=OVConfig(**options),
            convert_tokenizer=True,
        )


def _joined(folder: Path, model: str, tokenizer: str) -> str:
    """Return a folder with both, since the tools read the tokenizer from where the model is."""
    if model == tokenizer:
        return model
    for source in (tokenizer, model):
        for path in Path(source).iterdir():
            link = folder / path.name
            link.unlink(missing_ok=True)
            link.symlink_to(path.resolve())
    return str(folder)


def main() -> None:
    """Convert what the one line on stdin names."""
    replies = take_stdout()
    try:
        convert(**json.loads(sys.stdin.readline()))
        reply: dict[str, str] = {}
    except Exception as error:  # noqa: BLE001  whatever the tools raise is told
        traceback.print_exc()
        reply = {"error": describe(error)}
    replies.write(json.dumps(reply) + "\n")
    replies.flush()
