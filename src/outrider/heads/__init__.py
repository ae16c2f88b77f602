"""Trained heads that draft from what the target computes anyway: EAGLE and Medusa."""
