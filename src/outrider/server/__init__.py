"""The server: what other programs ask for over HTTP, turned into requests."""
