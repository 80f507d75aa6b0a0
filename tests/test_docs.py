"""The documentation is true: the tree, the command-line reference, the links, and the length of the front door."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_readme_is_a_front_door():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_command_line_reference_is_up_to_date():
    reference = runpy.run_path(str(ROOT / "scripts" / "write_cli_reference.py"))["reference"]()
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == reference, "run: make docs"


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name) if name else page
        assert linked.exists(), f"{page.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), f"{page.name} links to {target}"


def test_every_page_is_on_the_site():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guide").glob("*.md")]:
        assert page.relative_to(ROOT / "docs").as_posix() in navigation


def test_every_example_is_in_the_guide():
    text = (ROOT / "docs" / "guide" / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(\w+\.py)`", text)) == {path.name for path in (ROOT / "examples").glob("*.py")}


def test_the_version_is_written_once():
    version = runpy.run_path(str(ROOT / "src" / "fastformer" / "version.py"))["__version__"]
    found = [path.name for path in ROOT.glob("*") if path.suffix in (".toml", ".cff", ".yml")]
    assert not [name for name in found if re.search(rf"^version.*{version}", (ROOT / name).read_text("utf-8"), re.M)]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_file_tree_is_true():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    [tree] = re.findall(r"```\n(src/fastformer/.*?)```", page, re.DOTALL)
    stack, listed = [], set()
    for line in tree.splitlines():
        if not line.strip():
            continue
        depth, name = (len(line) - len(line.lstrip())) // 2, line.split()[0]
        stack = [*stack[:depth], name]
        path = "".join(stack)
        assert (ROOT / path).exists(), f"{path} is in the tree of docs/architecture.md but not in the project"
        listed.add(path.rstrip("/"))
    for file in (ROOT / "src").rglob("*.py"):
        relative = file.relative_to(ROOT).as_posix()
        if file.name in ("__init__.py", "__main__.py", "version.py"):
            continue
        parents = {parent.as_posix() for parent in file.relative_to(ROOT).parents}
        assert relative in listed or parents & listed - {"src/fastformer", "src", "."}, f"{relative} is not in the tree"
