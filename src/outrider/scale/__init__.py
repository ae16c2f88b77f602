"""Handing over to vLLM: its own server, with the same target and a drafter of ours."""
