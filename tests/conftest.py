"""Shared set-up: offline, few threads, quiet third parties."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch

# Tiny models gain nothing from a second thread, and lose much when the machine is busy.
torch.set_num_threads(1)
