"""The heads whose logits public implementations computed, and what they were given.

`tests/heads/golden/README.md` tells how the numbers were made.
"""

from __future__ import annotations

from dataclasses import replace

from outrider.heads.config import EagleConfig, MedusaConfig
from outrider.targets.base import NORMED

VOCAB = 24
DRAFTED = 10

_EAGLE1 = EagleConfig(
    version=1,
    hidden_size=32,
    target_hidden_size=32,
    intermediate_size=48,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=8,
    vocab_size=VOCAB,
    draft_vocab_size=VOCAB,
    max_position_embeddings=64,
    feature_layers=(NORMED,),
    owns_embeddings=True,
    owns_head=False,
    rms_norm_eps=1e-5,
    fc_bias=True,
)
_EAGLE3 = replace(
    _EAGLE1,
    version=3,
    feature_layers=(2, 3, 4),
    owns_head=True,
    fc_bias=False,
    num_key_value_heads=2,
    draft_vocab_size=DRAFTED,
)

EAGLE: dict[str, EagleConfig] = {
    "eagle1": _EAGLE1,
    "eagle1_no_bias": replace(_EAGLE1, fc_bias=False),
    "eagle1_two_layers_shared_keys": replace(_EAGLE1, num_layers=2, num_key_value_heads=2),
    "eagle1_scaled_rope": replace(
        _EAGLE1, rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
    ),
    "eagle3": replace(_EAGLE3, rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
    "eagle3_full_vocabulary": replace(_EAGLE3, draft_vocab_size=VOCAB, num_key_value_heads=4),
    "eagle3_narrower_target": replace(_EAGLE3, target_hidden_size=24),
}

SPECULATORS: dict[str, EagleConfig] = {
    "plain": _EAGLE3,
    "norm_before_residual": replace(_EAGLE3, norm_before_residual=True),
    "norm_before_fc": replace(_EAGLE3, norm_before_fc=True),
    "fc_norm": replace(_EAGLE3, fc_norm=True),
    "norm_output": replace(_EAGLE3, norm_output=True),
    "all_flags_two_layers": replace(
        _EAGLE3,
        norm_before_residual=True,
        fc_norm=True,
        norm_output=True,
        num_layers=2,
        attention_bias=True,
        mlp_bias=True,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ),
}

_MEDUSA = MedusaConfig(num_heads=3, num_layers=1, hidden_size=32, vocab_size=DRAFTED)

MEDUSA: dict[str, MedusaConfig] = {
    "one_block": _MEDUSA,
    "two_blocks": replace(_MEDUSA, num_layers=2),
    "output_of_the_target": replace(_MEDUSA, owns_output=False),
}
