"""Workloads: the prompts that drafters are tried on."""
