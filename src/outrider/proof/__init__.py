"""Evidence that a target and its drafters, on a machine, are lossless."""
