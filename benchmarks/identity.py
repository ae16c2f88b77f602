"""Whether every drafter writes what Transformers' own greedy generation writes, id by id.

Run `python benchmarks/identity.py PROMPTS.jsonl`. For each drafter it lists every prompt whose ids
part from Transformers', with the gap between Transformers' two best logits there (a gap under 1e-4
in float32 is a tie), then compares each drafter with plain decoding at temperature 1 and the same
seeds. The last line is one JSON document. `--reference FILE` keeps Transformers' ids for the next
time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import outrider
from common import DRAFTERS, Prompt, load_decoder, read_prompts
from outrider.difference import first_difference

TIE = 1e-4


def reference_ids(
    decoder: outrider.Decoder, prompts: Sequence[Prompt], count: int, file: Path | None
) -> dict[str, list[int]]:
    """Return what Transformers generates greedily for each prompt, kept in `file` if given."""
    if file is not None and file.exists():
        rows = json.loads(file.read_text(encoding="utf-8"))
        return {row["id"]: row["output_ids"][:count] for row in rows}
    model = decoder.engine.target.model  # type: ignore[attr-defined]
    rows = []
    for prompt in prompts:
        inputs = torch.tensor([prompt.ids])
        with torch.inference_mode():
            output = model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                do_sample=False,
                max_new_tokens=count,
            )
        rows.append({"id": prompt.id, "output_ids": output[0, len(prompt.ids) :].tolist()})
    if file is not None:
        file.write_text(json.dumps(rows), encoding="utf-8")
    return {row["id"]: row["output_ids"] for row in rows}


def gap(decoder: outrider.Decoder, ids: Sequence[int]) -> float:
    """Return how far Transformers' two best logits after `ids` lie apart."""
    model = decoder.engine.target.model  # type: ignore[attr-defined]
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([list(ids)]), use_cache=False).logits[0, -1]
    best = logits.float().topk(2).values
    return float(best[0] - best[1])


def compare_greedy(
    name: str,
    decoder: outrider.Decoder,
    prompts: Sequence[Prompt],
    expected: dict[str, list[int]],
    count: int,
) -> dict[str, Any]:
    """Decode all prompts greedily and list where the ids part from the expected ones."""
    results = decoder.generate_batch([p.ids for p in prompts], max_new_tokens=count)
    forks: list[dict[str, Any]] = []
    for prompt, result in zip(prompts, results, strict=True):
        at = first_difference(result.token_ids, expected[prompt.id])
        if at is not None:
            forks.append(
                {
                    "id": prompt.id,
                    "token": at,
                    "gap": gap(decoder, (*prompt.ids, *expected[prompt.id][:at])),
                }
            )
    ties = sum(fork["gap"] < TIE for fork in forks)
    tokens = sum(len(result.token_ids) for result in results)
    tau = tokens / sum(result.stats.rounds for result in results)
    print(
        f"{name:8} greedy: {len(prompts) - len(forks)} of {len(prompts)} identical to Transformers "
        f"({tokens} tokens, tau {tau:.2f}), {ties} ties, {len(forks) - ties} others",
        flush=True,
    )
    for fork in forks:
        print(f"         {fork['id']} parts at token {fork['token']}, gap {fork['gap']:.1e}")
    return {"identical": len(prompts) - len(forks), "forks": forks, "tokens": tokens, "tau": tau}


def main() -> None:
    """Run the recipe."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument(
        "--limit", type=int, default=None, help="use only the first so many prompts"
    )
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--reference", type=Path, default=None)
    options = parser.parse_args()
    report: dict[str, Any] = {}
    sampled_plain: list[tuple[int, ...]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in DRAFTERS:
            decoder = load_decoder(
                name, options.target, Path(folder), dtype="float32", max_batch=options.batch
            )
            prompts = read_prompts(options.prompts, decoder, options.limit)
            expected = reference_ids(decoder, prompts, options.tokens, options.reference)
            greedy = compare_greedy(name, decoder, prompts, expected, options.tokens)
            params = [
                outrider.SamplingParams(temperature=1.0, seed=seed, max_new_tokens=options.tokens)
                for seed in range(len(prompts))
            ]
            results = decoder.generate_batch([p.ids for p in prompts], params=params)
            sampled = [result.token_ids for result in results]
            sampled_plain = sampled_plain or sampled
            forks = {
                prompt.id: at
                for prompt, one, other in zip(prompts, sampled, sampled_plain, strict=True)
                if (at := first_difference(one, other)) is not None
            }
            tau = sum(map(len, sampled)) / sum(result.stats.rounds for result in results)
            print(
                f"{name:8} temperature 1: {len(prompts) - len(forks)} of {len(prompts)} identical "
                f"to plain decoding (tau {tau:.2f}) {forks or ''}",
                flush=True,
            )
            report[name] = {"greedy": greedy, "sampled": {"forks": forks, "tau": tau}}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
