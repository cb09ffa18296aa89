"""What the site takes from the root of the repository: README, CONTRIBUTING, SECURITY, CHANGELOG, CITATION.

These files are the one source of their text. Links are rewritten, so that they work on GitHub and here.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "CITATION.cff": "CITATION.cff",
    "LICENSE": "LICENSE.txt",
}
SECTIONS = {
    "A tour of five minutes": "tour.md",
    "Many machines": "deployment.md",
}  # of README, pages of their own
LINK = re.compile(r"(\]\()([^)#:\s]+)([^)]*\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of files of the root."""
    for name, target in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        if name == "README.md":
            text, sections = without_sections(text)
            for section, page in SECTIONS.items():
                files.append(File.generated(config, page, content=from_root(sections[section])))
        content = from_root(text) if target.endswith(".md") else text
        files.append(File.generated(config, target, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Let links from docs/ to the root lead to the pages made of it."""
    return LINK.sub(lambda link: link[1] + relinked(link[2], PAGES, "../") + link[3], markdown)


def without_sections(text: str) -> tuple[str, dict[str, str]]:
    """README with a link in place of each section that is a page, and those sections."""
    sections = {}
    for title, page in SECTIONS.items():
        section = re.search(rf"^## {title}\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
        if section is None:
            raise ValueError(f"README.md has no section '{title}', which is the page {page}")
        sections[title] = f"# {title}\n{section[1]}"
        text = text.replace(section[0], f"## {title}\n\nSee [{title}](docs/{page}).\n\n")
    return text, sections


def from_root(text: str) -> str:
    """The text of a file of the root as if it lay in docs/."""
    return LINK.sub(lambda link: link[1] + relinked(link[2].removeprefix("docs/"), PAGES) + link[3], text)


def relinked(target: str, pages: dict[str, str], prefix: str = "") -> str:
    path = normpath(target)
    name = path.removeprefix(prefix)
    return pages[name] if path.startswith(prefix) and name in pages else target
