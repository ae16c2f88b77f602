"""A model's pass as one compiled function over weights, cache and rows (ahead-of-time Inductor).

The rows of all sequences stand side by side in one ragged row of tokens, so one function with a
dynamic length serves every batch, draft and prompt. Its products and its attention are operators
of our own (`kernels`); what lies between them is fused by the compiler. Weights stay where they
are: the function is given those of the model, and holds none itself.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from outrider.errors import CompilerError
from outrider.targets.attention import AttentionSwitch, WrittenLayers
from outrider.targets.base import NORMED
from outrider.targets.blocks import BlockLinear, Blocks, read_as_blocks
from outrider.targets.cache import KVCache
from outrider.targets.diskcache import cached_folder, intact_entry, one_at_a_time
from outrider.targets.features import FeatureTap, decoder_layers
from outrider.targets.int8 import Int8Linear
from outrider.targets.kernels import load_kernels, machine_digest
from outrider.targets.layer_range import LayerRange
from outrider.targets.offload import execution_device, is_spread
from outrider.targets.substitution import substitute_kernels

_LOGGER = logging.getLogger("outrider")
_PACKAGE = "pass.pt2"
_CONSTANTS = "constants.safetensors"
_DTYPES = (torch.float32, torch.bfloat16)
_MOST_ROWS = 1 << 20
_MOST_TOKENS = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """What was compiled: all layers of a model, or a range of them."""

    run: Callable[[list[Tensor]], list[Tensor]]
    """[ids [1, R], positions [1, R], kept [K], places [R, 3], branches [R, w], what enters the
    first layer [1, R, H] if the pass `takes_states`, keys of each layer ..., values of each
    layer ...] -> [logits [1, K, V] of the rows `kept`, the states [1, R, H] of each of `layers`].
    """
    layers: tuple[int, ...]
    """Of all layers, the states are there anyway, so that giving them away costs no time."""
    takes_states: bool


def find_pass(
    model: PreTrainedModel, blocks: Mapping[str, Blocks], part: LayerRange | None = None
) -> Pass | None:
    """Return the compiled pass of a model, or of a part of it, if this machine has one, intact.

    The pass reads the weights that there are `blocks` of as those. Compiles nothing.
    """
    try:
        _require_compilable(model)
        with read_as_blocks(model, blocks):
            entry = intact_entry(_entry_name(model, part))
            if entry is None:
                return None
            _pack(model)
            return _load(model, part, entry)
    except CompilerError:
        return None


def compiled_pass(
    model: PreTrainedModel,
    blocks: Mapping[str, Blocks],
    cache: KVCache,
    part: LayerRange | None = None,
) -> Pass:
    """Return the same pass, compiling it first if this machine has none.

    The cache must have been used once: it knows the layers. Raises CompilerError.
    """
    _require_compilable(model)
    with read_as_blocks(model, blocks):
        name = _entry_name(model, part)
        _pack(model)
        if (found := intact_entry(name)) is not None:
            try:
                return _load(model, part, found)
            except CompilerError as error:
                _LOGGER.warning("compiling again: %s", error)
                shutil.rmtree(found, ignore_errors=True)

        def build(folder: Path) -> None:
            _compile(model, part, cache, folder)
            _load(model, part, folder)  # what does not load is not kept

        # The compiler's intermediate files are named after the code alone, for all processes.
        with one_at_a_time("compiling", on_waiting=_say_waiting):
            folder = cached_folder(name, build)
        return _load(model, part, folder)


def _pack(model: PreTrainedModel) -> None:
    """Let int8 layers be as the kernels read them, from here on."""
    load_kernels()
    for module in model.modules():
        if isinstance(module, Int8Linear):
            module.pack()


def _say_waiting() -> None:
    _LOGGER.info("waiting for another process to be done with compiling")


def _layers_given(model: PreTrainedModel, part: LayerRange | None) -> tuple[int, ...]:
    """Return the layers whose states a pass gives: those a part ends at, or all."""
    count = len(decoder_layers(model))
    if part is None:
        return (*range(count + 1), NORMED)
    return (part.last,) if part.last < count else ()


def _require_compilable(model: PreTrainedModel) -> None:
    device, dtype = execution_device(model), model.dtype
    if device.type != "cpu":
        raise CompilerError(f"passes are compiled for a CPU, and the model is on {device}")
    if is_spread(model):
        raise CompilerError("the model's weights are offloaded")
    if dtype not in _DTYPES:
        known = " or ".join(str(one).removeprefix("torch.") for one in _DTYPES)
        raise CompilerError(f"the model is {str(dtype).removeprefix('torch.')}, not {known}")


def _entry_name(model: PreTrainedModel, part: LayerRange | None) -> str:
    """Name the cache entry after all that the compiled pass depends on, the weights' values not."""
    config = {k: v for k, v in model.config.to_dict().items() if not k.startswith("_")}
    # Strides too: the compiled code reads the weights as they lay when it was made. Those of int8
    # layers are packed by then, whether they are now or not.
    layers = [module for module in model.modules() if isinstance(module, Int8Linear)]
    whole = {id(layer.weight) for layer in layers}
    tensors = [
        (name, str(t.dtype), t.shape, t.stride())
        for name, t in _tensors(model).items()
        if id(t) not in whole
    ]
    own = (BlockLinear, Int8Linear)
    kinds = [str(module) for module in model.modules() if isinstance(module, own)]
    module = inspect.getmodule(type(model))
    source = "" if module is None else inspect.getsource(module)
    here = Path(__file__)
    names = ("attention.py", "blocks.py", "features.py", "layer_range.py", "substitution.py")
    ours = [(here.parent / name).read_text() for name in (here.name, *names)]
    facts = [config, tensors, kinds, source, ours, machine_digest()]
    digest = hashlib.sha256(json.dumps(facts, default=str, sort_keys=True).encode()).hexdigest()
    ends = "" if part is None else f"layers-{part.first}-{part.last}-"
    return f"pass-{model.config.model_type}-{ends}{digest[:24]}"


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    named = dict(model.named_parameters(remove_duplicate=False))
    return named | dict(model.named_buffers(remove_duplicate=False))


# -- running ----------------------------------------------------------------------------------


def _load(model: PreTrainedModel, part: LayerRange | None, entry: Path) -> Pass:
    from torch._inductor import aoti_load_package

    load_kernels()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            package = aoti_load_package(str(entry / _PACKAGE))
        constants = load_file(entry / _CONSTANTS)
        named = {f"model.{name}": tensor.detach() for name, tensor in _tensors(model).items()}
        wanted = {
            name: constants[name] if name in constants else named[name]
            for name in package.get_constant_fqns()
        }
        package.load_constants(wanted, check_full_update=True, user_managed=True)
    except (RuntimeError, KeyError, OSError) as error:
        raise CompilerError(f"the compiled pass in {entry} does not load: {error}") from error

    boxed_run = package.loader.boxed_run  # the package itself parses its signature at every call

    def run(inputs: list[Tensor]) -> list[Tensor]:
        assert wanted  # the package reads the weights where they lie, so they must live as long
        outputs: list[Tensor] = boxed_run(inputs)
        return outputs

    return Pass(run, _layers_given(model, part), takes_states=part is not None and part.first > 0)


# -- compiling --------------------------------------------------------------------------------


class _Plan:
    """The plan of a pass while it is traced: storage and visibility are tensors, not yet known."""

    def __init__(
        self, places: Tensor, branches: Tensor, stored: dict[int, tuple[Tensor, Tensor]]
    ) -> None:
        self._places = places
        self._branches = branches
        self._stored = stored
        self._written = WrittenLayers()

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        self._written.add(layer)
        keys, values = self._stored[layer]
        mixed: Tensor = torch.ops.outrider.attention(
            query,
            key,
            value,
            keys,
            values,
            self._places,
            self._branches,
            scale,
            softcap or 0.0,
            window or 0,
        )
        return mixed


class _Forward(nn.Module):
    """The function to be compiled, as a module that owns the model."""

    def __init__(
        self, model: PreTrainedModel, part: LayerRange | None, layers: Sequence[int]
    ) -> None:
        super().__init__()
        self.model = model
        self._part = part
        self._layers = list(layers)
        self._keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._tap = FeatureTap(model, _layers_given(model, part))

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        kept: Tensor,
        places: Tensor,
        branches: Tensor,
        entering: list[Tensor],
        keys: list[Tensor],
        values: list[Tensor],
    ) -> tuple[Tensor, ...]:
        stored = dict(zip(self._layers, zip(keys, values, strict=True), strict=True))
        with self._range(entering), self._tap.on():
            logits: Tensor = self.model(
                input_ids=ids,
                position_ids=positions,
                use_cache=False,
                outrider_plan=_Plan(places, branches, stored),
                **({"logits_to_keep": kept} if self._keeps else {}),
            ).logits
        return (logits if self._keeps else logits[:, kept], *self._tap.states())

    def _range(self, entering: Sequence[Tensor]) -> AbstractContextManager[None]:
        return nullcontext() if self._part is None else self._part.on(*entering)


def _compile(model: PreTrainedModel, part: LayerRange | None, cache: KVCache, folder: Path) -> None:
    from torch._inductor import aoti_compile_and_package

    name = type(model).__name__
    what = name if part is None else f"{part} of {name}"
    _LOGGER.info("compiling the passes of %s, once for this machine: minutes at most", what)
    load_kernels()
    try:
        with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
            warnings.simplefilter("ignore")
            program = _export(model, part, cache)
            constants = dict(program.constants)
            substitute_kernels(program)
            aoti_compile_and_package(
                program,
                package_path=str(folder / _PACKAGE),
                inductor_configs={
                    "aot_inductor.package_constants_in_so": False,
                    "cpp.dynamic_threads": True,
                    # A state in bf16 is rounded where a layer ends, whatever is fused across: so
                    # that layers run apart give the bits of all in one pass.
                    "emulate_precision_casts": True,
                },
            )
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise CompilerError(f"{name} cannot be compiled: {reason}") from error
    known = {f"model.{tensor}" for tensor in _tensors(model)}
    extra = {
        key: value.detach().clone().contiguous()
        for key, value in constants.items()
        if isinstance(value, Tensor) and key not in known
    }
    save_file(extra, folder / _CONSTANTS)


def _export(
    model: PreTrainedModel, part: LayerRange | None, cache: KVCache
) -> torch.export.ExportedProgram:
    """Trace the pass with every length open: rows, rows kept, words of branches, slots, tokens."""
    layers = cache.layers
    # The trace must not see tensors made for inference alone, nor sizes that are special (0, 1).
    blank = [torch.zeros(2, t.shape[1], 8, t.shape[3], dtype=t.dtype) for t in cache.tensors]
    keys, values = blank[: len(layers)], blank[len(layers) :]
    rows = torch.arange(5)
    places = torch.stack([torch.zeros_like(rows), rows, rows + 1], dim=1)
    size = model.config.get_text_config(decoder=True).hidden_size
    takes_states = part is not None and part.first > 0
    entering = [torch.zeros(1, len(rows), size, dtype=model.dtype)] if takes_states else []
    inputs = (
        rows[None],
        rows[None],
        rows[:3],
        places,
        torch.zeros(5, 3, dtype=torch.long),
        entering,
        keys,
        values,
    )
    dim = torch.export.Dim
    row = dim("row", min=1, max=_MOST_ROWS)
    stored = {0: dim("slot", min=1, max=_MOST_ROWS), 2: dim("token", min=1, max=_MOST_TOKENS)}
    lengths = (
        {1: row},
        {1: row},
        {0: dim("kept", min=0, max=_MOST_ROWS)},
        {0: row},
        {0: row, 1: dim("word", min=1, max=_MOST_ROWS)},
        [{1: row}] * len(entering),
        [stored] * len(layers),
        [stored] * len(layers),
    )
    with AttentionSwitch(model).on():
        return torch.export.export(
            _Forward(model, part, layers), inputs, dynamic_shapes=lengths, strict=False
        )
