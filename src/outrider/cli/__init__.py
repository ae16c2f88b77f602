"""The command line: one module a command, results on stdout and everything else on stderr."""
