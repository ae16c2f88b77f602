"""`python -m outrider`: the command line, for where its script is not on the path."""

from outrider.cli.main import main

main()
