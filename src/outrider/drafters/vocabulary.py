"""Whether a drafter's token ids mean what the target's mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from outrider.errors import VocabularyMismatchError


class HasVocabulary(Protocol):
    """The part of a tokenizer that is compared."""

    def get_vocab(self) -> Mapping[str, int]:
        """Return the id of every token string, added tokens included."""
        ...


@dataclass(frozen=True, slots=True)
class VocabularyMatch:
    """Which ids a drafter may propose to a target.

    `shared_ids`: ids below it mean the same to both; ids from it on are never drafted.
    `is_checked` is False when a tokenizer was missing, so that only sizes could be compared.
    """

    shared_ids: int
    target_rows: int
    draft_rows: int
    is_checked: bool


def compare_vocabularies(
    target_tokenizer: HasVocabulary | None,
    draft_tokenizer: HasVocabulary | None,
    target_rows: int,
    draft_rows: int,
) -> VocabularyMatch:
    """Compare two tokenizers by what each id stands for, never by their sizes.

    The rows are the widths of the two language-model heads, which may be padded or cut freely.
    One vocabulary may go on where the other ends: those ids are not shared. Only ids travel
    between the models, so how text is split into tokens does not matter here. Without both
    tokenizers every id that both heads have counts as shared.

    Raises VocabularyMismatchError with the first id that means two things.
    """
    shared = min(target_rows, draft_rows)
    if target_tokenizer is None or draft_tokenizer is None:
        return VocabularyMatch(shared, target_rows, draft_rows, is_checked=False)
    target_tokens = _tokens_by_id(target_tokenizer)
    draft_tokens = _tokens_by_id(draft_tokenizer)
    last_common = max(target_tokens.keys() & draft_tokens.keys(), default=-1)
    for token_id in range(last_common + 1):
        ours, theirs = target_tokens.get(token_id), draft_tokens.get(token_id)
        if ours != theirs:
            raise VocabularyMismatchError(
                f"the drafter's vocabulary is not the target's: token id {token_id} is "
                f"{_show(ours)} to the target and {_show(theirs)} to the drafter"
            )
    shared = min(shared, last_common + 1)
    return VocabularyMatch(shared, target_rows, draft_rows, is_checked=True)


def _tokens_by_id(tokenizer: HasVocabulary) -> dict[int, str]:
    return {token_id: token for token, token_id in tokenizer.get_vocab().items()}


def _show(token: str | None) -> str:
    return "no token" if token is None else repr(token)
