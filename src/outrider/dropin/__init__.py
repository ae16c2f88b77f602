"""Speculative decoding inside Transformers' own `generate`: `custom_generate` makes what it takes.

`generate` prepares inputs, options, processors and criteria as ever and then calls us in place of
its own loop; what comes back is what that loop would have returned.
"""
