"""Lossless speculative decoding: the text plain decoding gives, in fewer passes of the model."""
