"""What the project's texts cite exists: sections of docs/agent.md, files, and nothing that only its authors have."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDERS = ("amago_core", "analysis", "benchmarks", "docs", "reproduce", "results", "tests")
TEXT = {".py", ".md", ".toml", ".yaml", ".sh", ".ini", ".ipynb", ".cff"}
SECTION = r"\d+(?:\.\d+)?"
CITED = re.compile(rf"\bagent\.md ({SECTION}(?:(?:,| to| and) {SECTION})*)")
BARE = re.compile(r"\bagent\.md(?! \d)")
#: Files with these names, and numbers in lists that the project does not hold. "Appendix C.4" is the paper's own.
FOREIGN = re.compile(
    r"\b(paper|cases|DESIGN)\.md\b"
    r"|\b[Pp]itfalls? \d"
    r"|\b[Cc]hecks? \d"
    r"|\b[Cc]ases? U?\d"
    r"|(?<![<\"'])\bU\d+\b"
    r"|\btest(_u\d+)+_"
    r"|(?<!Appendix )\b[A-H]\.\d+\b"
    r"|\bsection [A-H]\b"
)
#: Not yet rewritten.
LATER: tuple[str, ...] = ()
#: Made by runs.
MADE = ("results/runs/", "results/figures/")
LONGEST = 120


def text_files() -> Iterator[Path]:
    """Every text of the project, runs and this file apart."""
    for folder in (".", *FOLDERS):
        for path in sorted((REPOSITORY / folder).glob("*" if folder == "." else "**/*")):
            if path.suffix in TEXT and not name(path).startswith(LATER + MADE) and path != Path(__file__).resolve():
                yield path


def name(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


FILES = list(text_files())
PAGES = [path for path in FILES if path.suffix == ".md"]
HEADINGS = set(re.findall(rf"^##+ ({SECTION})\.? ", (REPOSITORY / "docs/agent.md").read_text(), re.MULTILINE))


def problems(text: str, source: bool) -> Iterator[tuple[int, str]]:
    """Line and text of every citation without a target; in a source file each mention of agent.md names a section."""
    for number, line in enumerate(text.splitlines(), 1):
        for found in FOREIGN.finditer(line):
            yield number, found.group()
        for found in CITED.finditer(line):
            yield from ((number, f"agent.md {s}") for s in re.findall(SECTION, found[1]) if s not in HEADINGS)
        if source and BARE.search(line):
            yield number, "agent.md without a section"


def test_every_citation_has_its_target() -> None:
    found = [
        f"{name(path)}:{number}: {what}"
        for path in FILES
        for number, what in problems(path.read_text(), path.suffix != ".md")
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    ["as in paper.md", "pitfalls 24, 25", "(A.8 step 3)", "cases U71", "(U71)", "check 7", "section E", "test_u1_x"],
)
def test_a_citation_that_only_its_author_can_follow_is_found(line: str) -> None:
    assert list(problems(line, source=True))


def test_a_section_that_does_not_exist_is_found() -> None:
    assert list(problems("x\n# agent.md 5.1, 99.1 and 5.2", source=True)) == [(2, "agent.md 99.1")]
    assert list(problems("see docs/agent.md.", source=True)) == [(1, "agent.md without a section")]
    assert not list(problems("agent.md 5.1 to 5.3; Appendix C.4 of the paper; np.dtype('<U3')", source=True))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_and_files_named_in_the_documents_exist(page: Path) -> None:
    text = page.read_text()
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    files = re.findall(r"`((?:amago_core|analysis|benchmarks|docs|reproduce|results|tests)/[\w/.-]+\.\w+)`", text)
    missing = [x for x in links if not (page.parent / x).exists()]
    assert missing + [x for x in files if not (REPOSITORY / x).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_lines_of_the_documents_are_short(page: Path) -> None:
    """Rows of tables cannot be broken, and may be longer."""
    lines = enumerate(page.read_text().splitlines(), 1)
    assert [f"{name(page)}:{n}" for n, line in lines if len(line) > LONGEST and not line.startswith("|")] == []
