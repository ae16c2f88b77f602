"""What the ids of two tokenizers have in common, where they do not mean the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.drafters.spec import Way
from outrider.drafters.spelling import Spelling, special_ids, spell
from outrider.drafters.vocabulary import VocabularyMatch, compare_vocabularies
from outrider.errors import OptionError, VocabularyMismatchError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Overlap:
    """How much two vocabularies have in common, by what their tokens spell.

    `shared` tokens are in both, of `target_tokens` and `draft_tokens` that have text in each;
    `ways` are those that drafts can come by.
    """

    shared: int
    target_tokens: int
    draft_tokens: int
    ways: tuple[Way, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Translation:
    """From the target's token ids to a draft model's and back.

    `shared` pairs ids (target's, draft model's) of the same text, one to one, in the target's
    order; `special` those of special tokens with the same name or office, which are no text.
    """

    target: Spelling
    draft: Spelling
    shared: tuple[tuple[int, int], ...]
    special: tuple[tuple[int, int], ...]

    @property
    def overlap(self) -> Overlap:
        """How much is in common, and what that allows."""
        sizes = [sum(word is not None for word in one.words) for one in (self.target, self.draft)]
        ways: tuple[Way, ...] = ("tokens", "text") if self.shared else ("text",)
        return Overlap(len(self.shared), sizes[0], sizes[1], ways)

    def ways(self, wanted: Way | None) -> tuple[Way, ...]:
        """Return the ways that drafts can come by, or the one that is wanted.

        Raises OptionError for one that is not among them.
        """
        ways = self.overlap.ways
        if wanted is None:
            return ways
        if wanted not in ways:
            raise OptionError(
                f"the drafter's way is {wanted!r}, but its vocabulary and the target's have no "
                f"token in common; the way 'text' needs none"
            )
        return (wanted,)


def relate(
    target_tokenizer: PreTrainedTokenizerBase | None,
    draft_tokenizer: PreTrainedTokenizerBase | None,
    target_rows: int,
    draft_rows: int,
    way: Way | None = None,
) -> VocabularyMatch | Translation:
    """Return which ids mean the same to both, or, if some do not, how they are translated.

    They are translated as well where the user names the `way` to draft. Raises OptionError for a
    way that cannot be had, and VocabularyMismatchError for ids that cannot be translated.
    """
    rows = (target_rows, draft_rows)
    if target_tokenizer is None or draft_tokenizer is None:
        if way is not None:
            raise OptionError(f"the drafter's way is {way!r}, which needs both models' tokenizers")
        return compare_vocabularies(target_tokenizer, draft_tokenizer, *rows)
    problem = ""
    if way is None:
        try:
            return compare_vocabularies(target_tokenizer, draft_tokenizer, *rows)
        except VocabularyMismatchError as error:
            problem = f"{error}; "
    try:
        found = translate(target_tokenizer, draft_tokenizer, *rows)
    except VocabularyMismatchError as error:
        raise VocabularyMismatchError(f"{problem}{error}") from error
    found.ways(way)
    return found


def translate(
    target_tokenizer: PreTrainedTokenizerBase,
    draft_tokenizer: PreTrainedTokenizerBase,
    target_rows: int,
    draft_rows: int,
) -> Translation:
    """Find out which tokens of two tokenizers are the same, by the bytes that they spell.

    Ids from `target_rows` and `draft_rows` on, the widths of the language-model heads, are no
    tokens of the models. Raises VocabularyMismatchError for a tokenizer that cannot be read.
    """
    target, draft = spell(target_tokenizer), spell(draft_tokenizer)
    shared = [
        (token_id, draft.ids[word])
        for word, token_id in target.ids.items()
        if word in draft.ids and token_id < target_rows and draft.ids[word] < draft_rows
    ]
    special = [
        pair
        for pair in _special_pairs(target_tokenizer, draft_tokenizer)
        if pair[0] < target_rows and pair[1] < draft_rows
    ]
    return Translation(target, draft, tuple(sorted(shared)), tuple(sorted(special)))


def _special_pairs(
    target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase
) -> list[tuple[int, int]]:
    """Pair special tokens written alike; then, if they are left, the ends and the beginnings."""
    names = [
        {str(one.convert_ids_to_tokens(token_id)): token_id for token_id in special_ids(one)}
        for one in (target, draft)
    ]
    pairs = {names[0][name]: names[1][name] for name in names[0].keys() & names[1].keys()}
    for office in ("eos_token_id", "bos_token_id"):
        ours, theirs = getattr(target, office), getattr(draft, office)
        free = ours not in pairs and theirs not in pairs.values()
        if ours is not None and theirs is not None and free:
            pairs[ours] = theirs
    return list(pairs.items())
