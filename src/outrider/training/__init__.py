"""Training drafters for a target: what it says, its hidden states, and what is learnt from them."""
