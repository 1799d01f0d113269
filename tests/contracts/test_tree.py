"""What holds for every file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.contracts.tree import PACKAGES, ROOT, all_files, sources, syntax

MAX_LINES = 330  # a file is one idea

# Spelled in parts, so that this file passes its own test.
FORBIDDEN = re.compile(
    "|".join(
        [
            r"\.\./" + "shared",
            "/" + "work/",
            "/" + "tmp/",
            r"\." + "library/",
            "developer " + "session",
            "TO" + "DO",
            "FIX" + "ME",
            "pragma: " + "no cover",
            r"\bissue " + r"#?\d",
        ]
    )
)


def test_a_file_is_one_idea() -> None:
    lengths = {
        source: len((ROOT / source).read_text().splitlines()) for source in sources(*PACKAGES, "tests", "examples")
    }
    assert not {source: length for source, length in lengths.items() if length > MAX_LINES}, (
        "find the seam and split it"
    )


def test_a_module_says_what_it_is_for() -> None:
    assert not [source for source in sources(*PACKAGES) if not ast.get_docstring(syntax(source))]


def test_the_project_speaks_of_itself_alone() -> None:
    found = []
    for path in all_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {match.group()}" for match in FORBIDDEN.finditer(text)]
    assert not found


def test_local_links_in_documents_lead_somewhere() -> None:
    broken = []
    for document in (path for path in all_files() if path.suffix == ".md"):
        targets = re.findall(r"\]\(([^)#]+)", document.read_text())
        broken += [
            f"{document.relative_to(ROOT)}: {target}"
            for target in targets
            if "://" not in target and not (document.parent / target).exists()
        ]
    assert not broken


def test_no_file_is_large() -> None:
    assert not [str(path) for path in all_files() if Path(path).stat().st_size > 500_000]
