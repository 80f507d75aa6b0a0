"""Write docs/cli.md from the command line itself, so that the two cannot differ.

    python scripts/write_cli_reference.py

With `--check` nothing is written; the exit code is 1 if the file is out of date.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from fastformer.cli.app import app

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
OPENING = """# Command line

Every command and option, as `--help` shows them. `make docs` writes this page from the program itself.
The [guide](guide/index.md) shows the commands at work.
"""


def reference() -> str:
    """The page as it should be."""
    command = typer.main.get_command(app)
    command.name = "fastformer"
    context = command.context_class(command, info_name="fastformer")
    return "\n".join([OPENING, *_sections(command, context)]).rstrip() + "\n"


def _sections(command: Any, context: Any) -> Iterator[str]:
    """The section of a command and those of its subcommands."""
    yield f"## `{context.command_path}`\n"
    yield f"{command.help.strip()}\n"
    yield f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```\n"
    yield from _table("argument", command, context)
    yield from _table("option", command, context)
    subcommands = getattr(command, "commands", {})
    if subcommands:
        yield "| command | what it does |\n|---|---|"
        for name, found in subcommands.items():
            full = f"{context.command_path} {name}"
            yield f"| [`{name}`](#{full.replace(' ', '-')}) | {_cell(found.help.strip().split(chr(10) * 2)[0])} |"
        yield ""
    for name, found in subcommands.items():
        yield from _sections(found, found.context_class(found, info_name=name, parent=context))


def _table(kind: str, command: Any, context: Any) -> Iterator[str]:
    parameters = [one for one in command.get_params(context) if one.param_type_name == kind and one.name != "help"]
    records = [record for one in parameters if (record := one.get_help_record(context))]  # None: hidden
    if records:
        yield f"| {kind} | meaning |\n|---|---|"
        yield from (f"| `{_cell(names)}` | {_cell(meaning)} |" for names, meaning in records)
        yield ""


def _cell(text: str) -> str:
    """A text in one cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    found = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if "--check" in sys.argv[1:]:
        sys.exit("docs/cli.md is out of date; run: make docs" if found != reference() else 0)
    PAGE.write_text(reference(), encoding="utf-8")
