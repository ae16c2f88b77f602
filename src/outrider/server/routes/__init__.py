"""The routes of the server, a module each."""
