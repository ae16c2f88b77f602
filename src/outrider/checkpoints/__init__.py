"""Trained heads in files: read from and written to the formats others use."""
