"""The ways to draft that a proof compares with plain decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from outrider.decoder import Decoder
from outrider.drafters import build_drafter, read_head
from outrider.drafters.base import Drafter
from outrider.drafters.spec import parse_spec
from outrider.proof.drafters import TellingDrafter
from outrider.types import Rule

_LENGTHS: tuple[int | Literal["auto"], ...] = (4, "auto", 1, 16)


@dataclass(frozen=True, slots=True)
class Variant:
    """Drafters, a rule and a draft length; ready to decode."""

    name: str
    decoder: Decoder
    greedy_only: bool = False
    """Whether the rule promises plain decoding's tokens for greedy requests alone."""


@dataclass(frozen=True, slots=True)
class Named:
    """A drafter, and what the user calls it."""

    name: str
    drafter: Drafter[Any]


def named_drafters(decoder: Decoder) -> tuple[Named, ...]:
    """Return the drafters of a decoder by their specs, or else by their own names."""
    names = decoder.engine.to_profile()["drafters"]
    return tuple(
        Named(decoder.specs.get(drafter, name), drafter)
        for name, drafter in zip(names, decoder.engine.drafters, strict=True)
    )


def chain_drafters(decoder: Decoder) -> tuple[Named, ...]:
    """Return those drafters, or others like them, whose drafts never branch when they are drawn.

    One that draws trees is built anew for chains, if a spec says how.
    """
    found = []
    for named in named_drafters(decoder):
        if not named.drafter.drafts_trees:
            found.append(named)
        elif (spec := decoder.specs.get(named.drafter)) is not None:
            found.append(Named(named.name, _chains_only(spec, decoder)))
    return tuple(found)


def _chains_only(text: str, decoder: Decoder) -> Drafter[Any]:
    spec, target = parse_spec(text), decoder.engine.target
    head = read_head(spec, decoder.name, decoder.loaded.model.config)
    built = build_drafter(
        spec,
        decoder.loaded,
        target,  # type: ignore[arg-type]  # what a decoder with specs was built with
        head=head,
        chains_only=True,
    )
    assert built is not None
    return built


def variants(decoder: Decoder, chains: Sequence[Named]) -> list[Variant]:
    """Return every way to draft: the decoder's drafters at several lengths, and our own.

    Ours are told plain decoding's answer, so that much is accepted. `chains` are drafters for
    rules that verify nothing else.
    """
    mine = named_drafters(decoder)
    vocab_size = decoder.engine.target.vocab_size
    telling = Named("told chains", TellingDrafter(vocab_size))
    branching = Named("told trees", TellingDrafter(vocab_size, width=3))

    def variant(
        who: Sequence[Named], length: int | Literal["auto"], rule: Rule = "match"
    ) -> Variant:
        name = f"{'+'.join(one.name for one in who)}, {_length(length)}, {rule}"
        drafters = [one.drafter for one in who]
        using = decoder.using(drafters, rule=rule, max_draft=length)
        return Variant(name, using, greedy_only=rule != "match")

    found = [variant([branching], 24), variant([telling], 7)]
    found += [variant([one], length) for length in _LENGTHS for one in mine]
    if len(mine) > 1:
        found.append(variant(mine, "auto"))
    found += [variant([branching], 24, "traversal"), variant([branching], 24, "rejection")]
    found.append(variant([telling], 7, "block"))
    if mine:
        found += [variant(mine, 8, "rejection"), variant(mine, 8, "traversal")]
    if chains:
        found.append(variant(chains, 4, "block"))
    return found


def _length(length: int | Literal["auto"]) -> str:
    return "auto" if length == "auto" else f"up to {length}"


def option_variants(decoder: Decoder) -> list[Variant]:
    """Return the ways to draft that sampling options are tried with: ours, and the decoder's."""
    telling = TellingDrafter(decoder.engine.target.vocab_size, width=3)
    found = [Variant("told trees", decoder.using((telling,), max_draft=16))]
    mine = named_drafters(decoder)
    if mine:
        drafters = [one.drafter for one in mine]
        using = decoder.using(drafters, max_draft=6)
        found.append(Variant("+".join(one.name for one in mine), using))
    return found
