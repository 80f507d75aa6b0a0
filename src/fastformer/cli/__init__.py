"""The command line, without logic."""

from fastformer.cli.app import app, main

__all__ = ["app", "main"]
