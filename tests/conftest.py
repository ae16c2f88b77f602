"""Shared set-up: offline, few threads, quiet third parties."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch

torch.set_num_threads(min(2, os.cpu_count() or 1))
