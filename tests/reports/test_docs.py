"""The worked examples in the docs run, and print what they say they print."""

import re

import pytest

from tests import docs

NUMBER = re.compile(r"[+−]?\d[\d,.]*")
PAGES = docs.pages()


def skeleton(text: str) -> list[str]:
    """Lines without their numbers and spacing: these change as profiles are measured anew."""
    kept = [line for line in text.splitlines() if not line.startswith(("Profile:", "Error:", "  "))]
    return [re.sub(r"\s+", " ", NUMBER.sub("#", line)).strip() for line in kept[:3]]


def test_there_are_three_examples() -> None:
    assert {page.stem for page in PAGES} >= {"buying", "chat-capacity", "long-context-fp8-cache"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_run_and_read_as_printed(page, capsys) -> None:
    found = list(docs.commands(page.read_text(encoding="utf-8")))
    assert found
    for command, output in found:
        assert skeleton(docs.printed(command)) == skeleton(output)
    capsys.readouterr()
