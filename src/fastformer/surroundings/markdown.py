"""Tables in Markdown, for reports that people read in a terminal and on a web page."""

from collections.abc import Sequence


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with columns of even width: the first to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = []
    for first, *others in (header, rule, *rows):
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)
