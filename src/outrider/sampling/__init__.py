"""From logits to tokens: options, the pipeline that applies them, and keyed randomness."""
