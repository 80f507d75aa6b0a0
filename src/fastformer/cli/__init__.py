"""The command line, without logic."""

import sys


def main() -> None:
    """Entry point. Ctrl-C is one line and code 130 from the first import on."""
    try:
        from fastformer.cli.app import main as run

        run()
    except KeyboardInterrupt:
        print("fastformer: stopped", file=sys.stderr)
        sys.exit(130)
