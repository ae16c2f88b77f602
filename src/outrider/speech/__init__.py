"""Sound as users have it, and how the texts of speech models begin."""
