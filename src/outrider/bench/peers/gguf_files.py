"""GGUF files with the weights of another one in another type, for llama.cpp.

So that it computes with the very weights outrider has expanded to float32, or with eight bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import (
    GGMLQuantizationType,
    GGUFReader,
    GGUFValueType,
    GGUFWriter,
    dequantize,
    quant_shape_to_byte_shape,
    quantize,
)

_TYPES = {
    "float32": GGMLQuantizationType.F32,
    "bfloat16": GGMLQuantizationType.BF16,
    "q8_0": GGMLQuantizationType.Q8_0,
}
_FILE_TYPES = {"float32": 0, "bfloat16": 32, "q8_0": 7}
_Q8_BLOCK = 32


def write_gguf(source: Path, weights: str, path: Path) -> None:
    """Write a GGUF file with the weights of `source` as "float32", "bfloat16" or "q8_0".

    Vectors, and matrices whose rows are no whole blocks, stay float32. One tensor is held at a
    time.
    """
    reader = GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = GGUFWriter(path, architecture)
    _copy_fields(reader, writer, _FILE_TYPES[weights])
    types = {tensor.name: _type_of(tensor, weights) for tensor in reader.tensors}
    for tensor in reader.tensors:
        shape = [int(size) for size in reversed(tensor.shape.tolist())]
        _announce(writer, tensor.name, shape, types[tensor.name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for data in _converted(reader, types):
        writer.write_tensor_data(data)
    writer.close()


def _copy_fields(reader: GGUFReader, writer: GGUFWriter, file_type: int) -> None:
    for name, field in reader.fields.items():
        # The writer sets these itself.
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        if name == "general.file_type":
            writer.add_file_type(file_type)
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=inner)


def _type_of(tensor: Any, weights: str) -> GGMLQuantizationType:
    wanted = _TYPES[weights]
    is_matrix = len(tensor.shape) > 1
    fits = wanted != GGMLQuantizationType.Q8_0 or int(tensor.shape[0]) % _Q8_BLOCK == 0
    return wanted if is_matrix and fits else GGMLQuantizationType.F32


def _announce(writer: GGUFWriter, name: str, shape: list[int], kind: GGMLQuantizationType) -> None:
    """Tell the writer of a tensor to come."""
    if kind == GGMLQuantizationType.F32:
        writer.add_tensor_info(name, shape, np.dtype(np.float32), 4 * int(np.prod(shape)))
        return
    stored = quant_shape_to_byte_shape(shape, kind)
    size = int(np.prod(stored))
    writer.add_tensor_info(name, stored, np.dtype(np.uint8), size, raw_dtype=kind)


def _converted(
    reader: GGUFReader, types: dict[str, GGMLQuantizationType]
) -> Iterator[np.ndarray[Any, Any]]:
    for tensor in reader.tensors:
        expanded = dequantize(tensor.data, tensor.tensor_type)
        kind = types[tensor.name]
        if kind == GGMLQuantizationType.F32:
            yield expanded.astype(np.float32, copy=False)
        else:
            yield quantize(expanded, kind)
