"""Programs that run in a peer's own environment: they import the peer, and nothing of outrider."""
