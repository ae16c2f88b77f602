"""Draft trees: where nodes stand, and which of them are worth a row."""
