"""Tuning: what passes and drafters cost on this machine, measured once and kept as a profile."""
