"""The computed tables of docs/scale.md, from published specifications and the assumptions there.

Nothing is measured. Run: python benchmarks/roofline.py
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

GB = 1e9


@dataclass(frozen=True)
class Device:
    """A GPU as its data sheet has it, and what is assumed of it."""

    memory: float = 141 * GB
    bandwidth: float = 4.8e12
    bf16: float = 989e12
    """Dense operations a second."""
    read: float = 0.85
    """Share of the bandwidth that reading weights gets."""
    compute: float = 0.7
    """Share of the operations that wide matrix products get."""
    usable: float = 0.9
    """Share of the memory for weights and the cache."""


@dataclass(frozen=True)
class Model:
    """A Llama of a size: its parameters, and what a token of context takes, in bf16."""

    name: str
    parameters: float
    embedding: float
    """Parameters of the embedding table, of which a pass reads a few rows."""
    layers: int
    hidden: int
    kv_heads: int = 8
    head_size: int = 128

    @property
    def weight_bytes(self) -> float:
        """Bytes of all the weights."""
        return 2 * self.parameters

    @property
    def read_bytes(self) -> float:
        """Bytes of weights that a pass reads."""
        return 2 * (self.parameters - self.embedding)

    @property
    def row_flops(self) -> float:
        """Operations of a row, without its attention."""
        return 2 * (self.parameters - self.embedding)

    @property
    def token_bytes(self) -> float:
        """Bytes of keys and values of one token."""
        return 2 * self.layers * self.kv_heads * self.head_size * 2


@dataclass(frozen=True)
class Head:
    """An EAGLE-3 head: what a step of it reads, and the probabilities that drafts are accepted."""

    read_bytes: float
    survival: Sequence[float]


@dataclass(frozen=True)
class Machine:
    """GPUs that share one model, and what sharing it costs a pass."""

    device: Device
    gpus: int = 1
    all_reduce_s: float = 10e-6

    def pass_s(self, model: Model, requests: int, length: int, context: int) -> float:
        """Return the seconds of a pass in which each request has drafts of so many tokens."""
        device, rows = self.device, requests * (1 + length)
        read = model.read_bytes + requests * context * model.token_bytes
        reading = read / (self.gpus * device.bandwidth * device.read)
        computing = rows * model.row_flops / (self.gpus * device.bf16 * device.compute)
        shared = 2 * model.layers * self.all_reduce_s if self.gpus > 1 else 0.0
        return max(reading, computing) + shared

    def step_s(self, head: Head, requests: int) -> float:
        """Return the seconds of a step of a head, which is computed on every GPU alike in part."""
        device = self.device
        reading = head.read_bytes / (self.gpus * device.bandwidth * device.read)
        computing = requests * head.read_bytes / (self.gpus * device.bf16 * device.compute)
        return max(reading, computing) + (2 * self.all_reduce_s if self.gpus > 1 else 0.0)

    def speedup(self, model: Model, head: Head, requests: int, length: int, context: int) -> float:
        """Return tokens a second over plain decoding's."""
        plain = self.pass_s(model, requests, 0, context)
        drafting = length * self.step_s(head, requests)
        tokens = 1 + sum(head.survival[:length])
        return tokens * plain / (self.pass_s(model, requests, length, context) + drafting)

    def cache_tokens(self, model: Model) -> float:
        """Return the tokens whose keys and values fit beside the weights."""
        room = self.gpus * self.device.memory * self.device.usable - model.weight_bytes
        return room / model.token_bytes


H200 = Device()
SMALL = Model("8B", 8.03e9, 0.525e9, layers=32, hidden=4096)
LARGE = Model("70B", 70.55e9, 1.05e9, layers=80, hidden=8192)
SURVIVAL = (0.7296, 0.5208, 0.3545)
HEADS = {"8B": Head(0.85 * GB, SURVIVAL), "70B": Head(2.8 * GB, SURVIVAL)}
NETWORK = 50e9
"""Bytes a second between two machines: 400 Gb/s."""
HOP_S = 10e-6
"""Seconds that a message between machines takes beside its bytes."""
FAR_ALL_REDUCE_S = 30e-6
"""Seconds of a small sum over the GPUs of two machines."""
CONTEXTS = (512, 8192)
BATCHES = (1, 4, 16, 64, 128, 256)


def models_table() -> str:
    """What a pass of each model reads, computes and keeps."""
    rows = [
        (
            model.name,
            f"{model.weight_bytes / GB:.1f} GB",
            f"{model.read_bytes / GB:.1f} GB",
            f"{model.row_flops / 1e9:.1f} G",
            f"{model.token_bytes / 1024:.0f} KiB",
            f"{1e3 * model.read_bytes / H200.bandwidth:.2f} ms",
        )
        for model in (SMALL, LARGE)
    ]
    heads = ("Model", "weights", "read a pass", "operations a row", "cache a token", "floor, 1 GPU")
    return _table(heads, rows)


def machines_table() -> str:
    """What each machine does for one request, and what it holds."""
    rows = []
    for model, gpus in ((SMALL, 1), (SMALL, 8), (LARGE, 2), (LARGE, 4), (LARGE, 8)):
        machine = Machine(H200, gpus)
        seconds = machine.pass_s(model, 1, 0, 512)
        tokens = machine.cache_tokens(model)
        rows.append(
            (
                model.name,
                str(gpus),
                f"{1e3 * seconds:.2f} ms",
                f"{1 / seconds:.0f}",
                f"{tokens / 1e3:.0f} k",
                f"{tokens / 2048:.0f}",
            )
        )
    heads = ("Model", "GPUs", "pass of 1 row", "tokens/s", "tokens of cache", "requests of 2,048")
    return _table(heads, rows)


def gain_table(model: Model, gpus: int) -> str:
    """The best drafts by batch, what they gain, and what plain decoding does."""
    machine, head = Machine(H200, gpus), HEADS[model.name]
    rows = []
    for requests in BATCHES:
        row = [str(requests)]
        for context in CONTEXTS:
            if requests * context > machine.cache_tokens(model):
                row += ["", "does not fit", ""]
                continue
            plain = requests / machine.pass_s(model, requests, 0, context)
            gains = [
                machine.speedup(model, head, requests, length, context)
                for length in range(len(head.survival) + 1)
            ]
            best = max(range(len(gains)), key=gains.__getitem__)
            row += [f"{plain:,.0f}", str(best), f"{gains[best]:.2f}"]
        rows.append(tuple(row))
    heads = ["Requests"]
    for context in CONTEXTS:
        heads += [f"plain tokens/s at {context:,}", "drafts", "gain"]
    return _table(heads, rows)


def nodes_table() -> str:
    """What two machines of eight GPUs do with one model, by how they share it."""
    model, requests, context = LARGE, 128, 2048
    one = Machine(H200, 8)
    wide = Machine(H200, 16, all_reduce_s=FAR_ALL_REDUCE_S)

    def hop(rows: int) -> float:
        return HOP_S + rows * model.hidden * 2 / NETWORK

    alone, loaded = (one.pass_s(model, n, 0, context) for n in (1, requests))
    ways = (
        ("one machine", alone, requests / loaded, one.cache_tokens(model)),
        ("two replicas", alone, 2 * requests / loaded, 2 * one.cache_tokens(model)),
        # Two batches are under way, one in each half: each half does half the work of a pass.
        (
            "pipeline of two",
            alone + 2 * hop(1),
            requests / (loaded / 2 + hop(requests)),
            wide.cache_tokens(model),
        ),
        (
            "tensor parallel over 16",
            wide.pass_s(model, 1, 0, context),
            requests / wide.pass_s(model, requests, 0, context),
            wide.cache_tokens(model),
        ),
    )
    rows = [
        (name, f"{1e3 * seconds:.2f} ms", f"{rate:,.0f}", f"{tokens / 1e3:.0f} k")
        for name, seconds, rate, tokens in ways
    ]
    heads = ("70B on", "pass of 1 row", "plain tokens/s, batches of 128", "tokens of cache")
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def tables() -> dict[str, str]:
    """Return all tables by what they are of."""
    return {
        "models": models_table(),
        "machines": machines_table(),
        "8B on one H200": gain_table(SMALL, 1),
        "70B on eight H200": gain_table(LARGE, 8),
        "70B on two machines of eight": nodes_table(),
    }


if __name__ == "__main__":
    for title, table in tables().items():
        print(f"{title}\n\n{table}\n")
