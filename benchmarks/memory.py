"""The memory part of `engine.py`: peaks of processes of their own, over what they must hold."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

_SCRIPT = """
import ctypes, pathlib, re, sys, tempfile
import torch, torch._inductor.package, outrider
from transformers import LlamaConfig, LlamaForCausalLM
from outrider.targets.loading import load_model, load_tokenizer
from outrider.targets.quiet import quiet_transformers

def resident(field):
    text = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(field + r":\\s*(\\d+)", text).group(1))

spec, dtype, compile, expanded = sys.argv[1:]
suffix = "@int8" if spec.endswith("@int8") else ""
imported = resident("VmRSS")
tokenizer = load_tokenizer(spec)
read = resident("VmRSS")
tiny = LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=1,
                   num_attention_heads=2, bos_token_id=None, eos_token_id=None, pad_token_id=None)
with tempfile.TemporaryDirectory() as folder, quiet_transformers():
    LlamaForCausalLM(tiny).save_pretrained(folder)
    small = outrider.load(
        folder + suffix, tokenizer=tokenizer, dtype=dtype, compile=False, drafter="suffix"
    )
    small.generate([1, 2] * 9, max_new_tokens=8, temperature=0)
    del small
ctypes.CDLL(None).malloc_trim(0)  # what is held, not what was freed and could be used again
pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = resident("VmRSS")
# A model that is given as such has no file whose blocks could be read.
model = load_model(spec, tokenizer=tokenizer, dtype=dtype).model if expanded == "True" else spec
decoder = outrider.load(
    model, tokenizer=tokenizer, dtype=dtype, compile=compile == "True", drafter="suffix"
)
loaded = resident("VmHWM")
result = decoder.generate("Repeat: " + "one two three " * 80, max_new_tokens=128, temperature=0)
target = decoder.engine.target
weights = {t.data_ptr(): t.nbytes for t in (*target.model.parameters(), *target.model.buffers())}
blocks = decoder.loaded.gguf.blocks(make=False) if target.reads_blocks else {}
widest = 1 + max(choice.drafted for choice in result.stats.choices.values())
logits = widest * target.vocab_size * 4
print(imported, read - imported, before, loaded, resident("VmHWM"),
      sum(weights.values()), sum(one.stored.nbytes for one in blocks.values()),
      target.cache_bytes, logits, widest)
"""


def measure(spec: str, dtype: str, *, compile: bool, expanded: bool = False) -> dict[str, Any]:
    """Return the bytes that a model takes in a process of its own.

    Where passes read a GGUF file's blocks, what they stand for lies in a mapped file beside them,
    which the first pass after loading, an eager one, has read whole; `expanded` has no blocks.

    The peak is over what the process held before any weight was read: the libraries, the code that
    loads a model and runs a pass (a tiny model has done both), and the tokenizer, which cost the
    same however large the model is. They have figures of their own, and are no part of the ratio.
    """
    command = [sys.executable, "-c", _SCRIPT, spec, dtype, str(compile), str(expanded)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    imported, tokenizer, before, loaded, peak, weights, blocks, cache, logits, rows = map(
        int, output.split()[-10:]
    )
    needed = weights + blocks + cache + logits
    return {
        "libraries": imported,
        "tokenizer": tokenizer,
        "before": before,
        "weights": weights,
        "blocks": blocks,
        "cache": cache,
        "logits": logits,
        "needed": needed,
        "loading": loaded - before,
        "peak": peak - before,
        "rows": rows,
        "ratio": (peak - before) / needed,
    }


def show(name: str, found: dict[str, Any]) -> None:
    """Print the figures of a model."""
    sizes = {key: f"{value / 2**20:,.0f} MiB" for key, value in found.items()}
    print(
        f"{name}: peak {sizes['peak']} (after loading {sizes['loading']}), which is "
        f"{found['ratio']:.2f}x weights {sizes['weights']} + blocks {sizes['blocks']} + cache "
        f"{sizes['cache']} + logits of the widest pass, of {found['rows']} rows, {sizes['logits']};"
        f" beside it {sizes['before']}, of which libraries {sizes['libraries']} and tokenizer "
        f"{sizes['tokenizer']}",
        flush=True,
    )
