# SPDX-License-Identifier: Apache-2.0
"""The links of a site of static files: to pages, to places within them, to pictures and scripts."""

import html.parser
import pathlib
import urllib.parse

_ATTRIBUTES = {"href", "src"}


def broken(site: pathlib.Path) -> list[str]:
    """Returns a line for each link that leads nowhere within a site.

    Links to other sites are not followed.

    Args:
        site: the directory. `404.html` in it may be sent for any path: its links start at `site`.
    """
    pages = {path.resolve(): _read(path) for path in sorted(site.rglob("*.html"))}
    lines = []
    for path, page in pages.items():
        for link in sorted(page.links):
            if not _leads_somewhere(link, path, pages):
                lines.append(f"{path.relative_to(site.resolve())}: {link}")
    return lines


class _Page(html.parser.HTMLParser):
    """The links of a page, and the places in it that links can lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in _ATTRIBUTES and value is not None and tag != "base":
                self.links.add(value)
            elif name == "id" and value:
                self.places.add(value)


def _read(path: pathlib.Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _leads_somewhere(link: str, path: pathlib.Path, pages: dict[pathlib.Path, _Page]) -> bool:
    parts = urllib.parse.urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = path
    if parts.path:
        target = (path.parent / urllib.parse.unquote(parts.path)).resolve()
    if not target.is_file():
        return False
    place = urllib.parse.unquote(parts.fragment)
    return not place or target not in pages or place in pages[target].places
