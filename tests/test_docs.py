"""Every command and code block of the docs runs, and prints what the page says."""

import re

import pytest

from roofcast.reports.cli import run
from tests import docs

PAGES = {str(page.relative_to(docs.ROOT)): page for page in docs.pages()}
INSTALLS = {"README.md": {"sh"}}
"""Blocks that install the project; `.ci/run` runs them in a new environment."""
MEASURES = {"docs/how-to/calibrate.md": {"sh"}}
"""Blocks that measure for minutes: tests see that their commands and options exist."""


def headings(text: str) -> set[str]:
    """Lines without numbers: what stays when a profile is fitted again."""
    return {" ".join(line.split()) for line in text.splitlines() if not re.search(r"\d", line)}


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """An empty folder, and no profiles but the shipped ones."""
    monkeypatch.setenv("ROOFCAST_PROFILES", str(tmp_path / "profiles"))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("name", PAGES)
def test_blocks_print_what_the_page_says(name, workplace):
    text = PAGES[name].read_text(encoding="utf-8")
    for outcome in docs.outcomes(PAGES[name]):
        if name == "README.md":
            continue  # its commands run, and show no output
        if outcome.exact:
            assert outcome.printed == outcome.written, outcome.source
        else:
            missing = headings(outcome.written) - headings(outcome.printed)
            assert len(missing) <= len(headings(outcome.written)) // 2, outcome.source
    for figure in docs.figures(text):
        assert (docs.DOCS / "figures" / figure).is_file(), figure
        assert (workplace / figure).is_file(), f"no block of {name} draws {figure}"


@pytest.mark.parametrize("name", PAGES)
def test_every_block_is_of_a_kind_that_is_run(name):
    found = docs.kinds(PAGES[name].read_text(encoding="utf-8"))
    others = INSTALLS.get(name, set()) | MEASURES.get(name, set())
    assert found <= {"console", "python", "text"} | others


@pytest.mark.parametrize("name", MEASURES)
def test_commands_that_measure_exist_with_their_options(name):
    """Help is printed only after the whole line was understood."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGES[name].read_text(encoding="utf-8"), re.DOTALL)
    lines = [line.partition("#")[0].split() for block in blocks for line in block.splitlines()]
    assert len(lines) >= 6
    for words in lines:
        assert words[0] == "roofcast"
        assert run([*words[1:], "--help"]) == 0, " ".join(words)


@pytest.mark.parametrize("name", PAGES)
def test_links_between_pages_lead_somewhere(name):
    page = PAGES[name]
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target
