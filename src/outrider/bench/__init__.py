"""Benchmarks: drafters and peers side by side on prompts, with equality checked in the same run."""
