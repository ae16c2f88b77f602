"""Attention heads that copy, given to a drafter before it is trained.

A text says again what it said: after words that were there before comes what came then. A deep
model has heads for that (Olsson et al. 2022, "induction heads"): some read the tokens before, and
later ones find where the present tokens were the ones before, and say what stands there. A drafter
of a few layers does not come to it by itself in what it is trained with, so it is given it. The
directions in which tokens are passed on and compared are written down in closed form, as canonical
correlations; where the heads look is learnt, on made-up texts as well, so that they copy what they
never saw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from transformers import PreTrainedModel

from outrider.checkpoints.base import Checkpoint
from outrider.errors import OptionError
from outrider.heads.config import DraftConfig, EagleConfig
from outrider.heads.draft import own_tensors
from outrider.heads.eagle import EagleHead
from outrider.training.base import Sample
from outrider.training.copying.draft import OFFSETS, DraftCopying
from outrider.training.copying.eagle import EagleCopying
from outrider.training.copying.more_heads import Heads, with_more_heads
from outrider.training.copying.texts import CopyingTexts
from outrider.training.draft import to_be_trained
from outrider.training.teacher import Teacher


def with_copying_heads(
    drafter: Checkpoint,
    model: PreTrainedModel,
    teacher: Teacher,
    samples: Sequence[Sample],
    *,
    seed: int = 0,
    autocast: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Checkpoint:
    """Return a drafter that has new attention heads, which copy, and is the same otherwise.

    `teacher` has the output layer that a draft model speaks with, and the states that an EAGLE head
    reads. Raises OptionError for a draft model of one layer, an EAGLE-1 head, and a drafter that
    cannot have more heads.
    """
    config = drafter.config
    if not isinstance(config, DraftConfig | EagleConfig):
        raise OptionError("copying heads are given to EAGLE heads and draft models only")
    if isinstance(config, DraftConfig) and config.num_layers < 2:
        raise OptionError("copying takes two layers; this draft model has one")
    texts = CopyingTexts(samples, teacher, config.vocab_size, seed)
    old, wider = Heads.of(config), with_more_heads(drafter, OFFSETS, seed)
    if isinstance(wider.config, EagleConfig):
        head = EagleHead.load(wider.config, wider.tensors).float().to(model.device)
        EagleCopying(head, old, teacher, texts, autocast=autocast).learn(say)
        return replace(wider, tensors={n: part.detach() for n, part in head.state_dict().items()})
    module = to_be_trained(wider, model)
    DraftCopying(module, old, teacher, texts, autocast=autocast).learn(say)
    return replace(wider, tensors=dict(wider.tensors) | own_tensors(module))
