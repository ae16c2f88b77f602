"""A large model on a GPU: passes against memory bandwidth, rounds against their ideal, and a peer.

Run `python benchmarks/gpu.py` on an idle GPU: the shape is that of an 8-billion-parameter Llama.
`python benchmarks/gpu.py --tiny` goes through the same on a CPU in seconds; its figures mean
nothing. All that is compared takes turns. Prints one JSON document as the last line.

Target and assistant are models of random weights whose texts are decided (`decided.py`); the
assistant agrees with the target in a set share of tokens. So all that is drafted below has the same
acceptance, ours and the peer's.

plain           no drafts
replay          drafts read off a recorded plain run, as wrong as the assistant's: nearly free
model           drafts of the assistant
transformers    the target under Transformers' own `generate`
assisted        the same with the assistant, as many drafts a round
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor

from decided import ReplayDrafter, decided_model, guesses, successors
from outrider.drafters.base import Drafter
from outrider.drafters.model import ModelDrafter
from outrider.engine.engine import Engine
from outrider.engine.request import Request
from outrider.sampling.params import SamplingParams
from outrider.targets.base import Rows
from outrider.targets.transformers import TransformersTarget
from outrider.types import DraftTree

COMPILE = {"eager": False, "graphed": None, "fused": True}


# -- memory and passes --------------------------------------------------------------------------


def timed(device: torch.device, work: Callable[[], object]) -> float:
    """Return the seconds that work takes, on the device too."""
    _wait(device)
    started = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - started


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def bandwidth(device: torch.device, mib: int, repeats: int) -> dict[str, float]:
    """Return bytes a second: read by a sum and a maximum, and read and written by a copy."""
    source = torch.ones(mib * 2**18, device=device)
    other = torch.empty_like(source)
    works: dict[str, tuple[int, Callable[[], object]]] = {
        "sum": (1, source.sum),
        "maximum": (1, source.amax),
        "copy": (2, lambda: other.copy_(source)),
    }
    best: dict[str, float] = defaultdict(float)
    for _ in range(repeats):
        for name, (times, work) in works.items():
            best[name] = max(best[name], times * source.nbytes / timed(device, work))
    return dict(best)


def weight_bytes(model: Any) -> int:
    """Return the bytes of weights that a pass reads: of the embeddings only a few rows."""
    weights: dict[int, int] = {p.data_ptr(): p.nbytes for p in model.parameters()}
    embeddings = int(model.get_input_embeddings().weight.nbytes)
    return sum(weights.values()) - embeddings


def pass_seconds(
    target: TransformersTarget, text: Sequence[int], context: int, rows: Sequence[int], repeats: int
) -> dict[int, float]:
    """Return the median seconds in the model of passes of so many rows, which take turns."""
    sequence = target.open(len(text))
    target.score([Rows(sequence, tuple(text[:context]))])
    target.commit(sequence, ())
    seconds: dict[int, list[float]] = {count: [] for count in rows}
    for repeat in range(repeats + 2):  # what is recorded or compiled on first use comes before
        for count in rows:
            tree = DraftTree.chain(text[context + 1 : context + count])
            found = target.score([Rows(sequence, (text[context],), tree)]).seconds
            if repeat >= 2:
                seconds[count].append(found)
    target.close(sequence)
    return {count: statistics.median(values) for count, values in seconds.items()}


# -- decoding -----------------------------------------------------------------------------------


@dataclass
class Tally:
    """Totals of one way to decode, over all repeats; `later` leaves out reading the prompt."""

    seconds: float = 0.0
    tokens: int = 0
    passes: int = 0
    later_seconds: float = 0.0
    later_tokens: int = 0
    later_passes: int = 0
    texts: list[tuple[int, ...]] = field(default_factory=list)

    def row(self, plain: Tally) -> dict[str, Any]:
        """Return the figures, over those of plain decoding too."""
        rate, plain_rate = self.tokens / self.seconds, plain.tokens / plain.seconds
        return {
            "tokens_per_second": rate,
            "over_plain": rate / plain_rate,
            "tau": self.tokens / self.passes,
            "identical": all(text == plain.texts[0] for text in self.texts),
        }


def decode(engine: Engine, prompt: Sequence[int], tokens: int, device: torch.device) -> Tally:
    """Decode with outrider."""
    params = SamplingParams(max_new_tokens=tokens, ignore_eos=True)
    request = Request(prompt_ids=tuple(prompt), params=params, seed=0)
    tally, text = Tally(), []
    started = first = time.perf_counter()
    for _, chunk, _ in engine.run([request]):
        text += [token.id for token in chunk.tokens]
        tally.passes += 1
        if tally.passes == 1:
            first, head = time.perf_counter(), len(text)
    _wait(device)
    ended = time.perf_counter()
    tally.seconds, tally.tokens, tally.texts = ended - started, len(text), [tuple(text)]
    tally.later_seconds, tally.later_tokens = ended - first, len(text) - head
    tally.later_passes = tally.passes - 1
    return tally


def generate(
    model: Any, prompt: Sequence[int], tokens: int, device: torch.device, **more: Any
) -> Tally:
    """Decode with Transformers."""
    tally = Tally()

    def count(*_: Any) -> None:
        tally.passes += 1

    ids = torch.tensor([prompt], device=device)
    hook = model.register_forward_hook(count)
    outputs: list[Tensor] = []
    options = {"attention_mask": torch.ones_like(ids), "do_sample": False} | more
    tally.seconds = timed(
        device, lambda: outputs.append(model.generate(ids, max_new_tokens=tokens, **options))
    )
    hook.remove()
    tally.texts = [tuple(outputs[0][0, len(prompt) :].tolist())]
    tally.tokens = len(tally.texts[0])
    return tally


def in_turn(ways: Mapping[str, Callable[[], Tally]], repeats: int) -> dict[str, Tally]:
    """Decode in every way, once to warm up and then `repeats` times, the first one moving on."""
    names = list(ways)
    totals = {name: Tally() for name in names}
    for repeat in range(repeats + 1):
        turn = repeat % len(names)
        for name in names[turn:] + names[:turn]:
            found = ways[name]()
            if repeat:
                for figure in totals[name].__dataclass_fields__:
                    value = getattr(totals[name], figure) + getattr(found, figure)
                    setattr(totals[name], figure, value)
    return totals


def draft_seconds(drafter: ReplayDrafter, prompt: Sequence[int], length: int) -> float:
    """Return the median seconds of a draft of the replaying drafter, by itself."""
    state = [len(prompt)]
    cpu = torch.device("cpu")
    return statistics.median(
        timed(cpu, lambda: drafter.propose([state], [length])) for _ in range(201)
    )


# -- the recipe ---------------------------------------------------------------------------------


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the recipe; returns all figures."""
    device = torch.device(options.device)
    right, guessed = successors(options.vocab), guesses(options.vocab, options.acceptance)
    common = {
        "dtype": getattr(torch, options.dtype),
        "device": device,
        "max_position_embeddings": options.context + options.tokens + 64,
    }
    model = decided_model(
        right,
        **common,
        num_hidden_layers=options.layers,
        hidden_size=options.hidden,
        num_attention_heads=options.heads,
        num_key_value_heads=options.kv_heads,
        intermediate_size=options.intermediate,
    )
    assistant = decided_model(
        guessed,
        **common,
        num_hidden_layers=options.assistant_layers,
        hidden_size=options.assistant_hidden,
        num_attention_heads=max(1, options.assistant_hidden // 64),
        intermediate_size=4 * options.assistant_hidden,
    )
    compile = COMPILE[options.passes]
    target = TransformersTarget(model, compile=compile)
    small = TransformersTarget(assistant, compile=compile)
    prompt = [0]
    while len(prompt) < options.context:
        prompt.append(int(right[prompt[-1]]))
    speed = bandwidth(device, options.bandwidth_mib, options.repeats)
    plain = Engine(target, max_draft=0)
    recorded = decode(plain, prompt, options.tokens, device).texts[0]
    text = [*prompt, *recorded]
    replay = ReplayDrafter(text, guessed.tolist())
    rows = sorted({1, options.draft + 1, *options.rows})
    passes = pass_seconds(target, text, options.context, rows, options.pass_repeats)
    model_drafter = ModelDrafter(small, vocab_size=options.vocab, shared_ids=options.vocab)
    tallies = in_turn(
        ways(options, plain, prompt, {"replay": replay, "model": model_drafter}, model, assistant),
        options.repeats,
    )
    draft_s = draft_seconds(replay, prompt, options.draft)
    return report(options, target, speed, passes, tallies, draft_s)


def ways(
    options: argparse.Namespace,
    plain: Engine,
    prompt: Sequence[int],
    drafters: Mapping[str, Drafter[Any]],
    model: Any,
    assistant: Any,
) -> dict[str, Callable[[], Tally]]:
    """Return every way to decode, by name."""
    tokens, device = options.tokens, torch.device(options.device)
    engines = {"plain": plain} | {
        name: Engine(plain.target, drafter, max_draft=options.draft)
        for name, drafter in drafters.items()
    }
    # As many drafts every round, whatever the assistant thinks of them: as ours.
    config = assistant.generation_config
    config.num_assistant_tokens = options.draft
    config.num_assistant_tokens_schedule = "constant"
    config.assistant_confidence_threshold = 0.0
    found: dict[str, Callable[[], Tally]] = {
        name: lambda engine=engine: decode(engine, prompt, tokens, device)  # type: ignore[misc]
        for name, engine in engines.items()
    }
    found["transformers"] = lambda: generate(model, prompt, tokens, device)
    found["assisted"] = lambda: generate(model, prompt, tokens, device, assistant_model=assistant)
    return found


def report(
    options: argparse.Namespace,
    target: TransformersTarget,
    speed: Mapping[str, float],
    passes: Mapping[int, float],
    tallies: Mapping[str, Tally],
    draft_s: float,
) -> dict[str, Any]:
    """Put the figures together."""
    device = torch.device(options.device)
    weights = weight_bytes(target.model)
    floor = weights / max(speed["sum"], speed["maximum"])
    plain, replay = tallies["plain"], tallies["replay"]
    token_s = plain.later_seconds / plain.later_tokens
    ideal = draft_s + passes[options.draft + 1]
    runs = {name: tally.row(plain) for name, tally in tallies.items()}
    for name in ("replay", "model"):
        runs[name]["over_assisted"] = (
            runs[name]["tokens_per_second"] / runs["assisted"]["tokens_per_second"]
        )
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "options": vars(options),
        "are_passes_prepared": target.is_compiled,
        "bytes_per_second": speed,
        "weight_bytes": weights,
        "floor_ms": 1e3 * floor,
        "plain": {
            "pass_ms": 1e3 * passes[1],
            "token_ms": 1e3 * token_s,
            "pass_of_floor": floor / passes[1],
            "token_of_floor": floor / token_s,
        },
        "pass_ms": {rows: 1e3 * seconds for rows, seconds in passes.items()},
        "pass_ratio": {rows: seconds / passes[1] for rows, seconds in passes.items()},
        "rounds": {
            "tau": replay.later_tokens / replay.later_passes,
            "draft_ms": 1e3 * draft_s,
            "score_ms": 1e3 * passes[options.draft + 1],
            "round_ms": 1e3 * replay.later_seconds / replay.later_passes,
            "efficiency": ideal * replay.later_passes / replay.later_seconds,
        },
        "runs": runs,
    }


def main() -> None:
    """Run the recipe."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--tiny", action="store_true", help="sizes for a CPU, to see that the recipe works")
    add("--passes", choices=list(COMPILE), default="fused")
    add("--device", default="cuda")
    add("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    add("--layers", type=int, default=32)
    add("--hidden", type=int, default=4096)
    add("--heads", type=int, default=32)
    add("--kv-heads", type=int, default=8)
    add("--intermediate", type=int, default=14336)
    add("--vocab", type=int, default=128256)
    add("--assistant-layers", type=int, default=2)
    add("--assistant-hidden", type=int, default=1024)
    add("--context", type=int, default=1024, help="tokens of the prompt")
    add("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    add("--draft", type=int, default=7, help="tokens drafted each round")
    add("--acceptance", type=float, default=0.8, help="share of drafted tokens that are right")
    add("--rounds", type=int, default=64, help="rounds with drafts in a run, about")
    add("--repeats", type=int, default=5, help="runs of each way to decode")
    add("--pass-repeats", type=int, default=50)
    add("--bandwidth-mib", type=int, default=4096)
    tiny: dict[str, Any] = {
        "passes": "eager", "device": "cpu", "dtype": "float32", "layers": 2, "hidden": 128,
        "heads": 4, "kv_heads": 2, "intermediate": 256, "vocab": 512, "assistant_layers": 1,
        "assistant_hidden": 128, "context": 64, "rounds": 8, "repeats": 2, "pass_repeats": 5,
        "bandwidth_mib": 16,
    }  # fmt: skip
    if parser.parse_known_args()[0].tiny:
        parser.set_defaults(**tiny)
    options = parser.parse_args()
    a = options.acceptance
    if not 0 <= a <= 1:
        parser.error(f"--acceptance is {a}; it must be 0 to 1")
    tau = sum(a**depth for depth in range(options.draft + 1))
    options.tokens = max(math.ceil(options.rounds * tau), max(options.rows), options.draft + 1) + 1
    print(json.dumps(measure(options)))


if __name__ == "__main__":
    main()
