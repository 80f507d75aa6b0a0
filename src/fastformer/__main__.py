"""`python -m fastformer`: the command line."""

from fastformer.cli import main

main()
