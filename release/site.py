# SPDX-License-Identifier: Apache-2.0
"""The documentation as a site of static files, for a web server or for `file://`.

    SITE/VERSION/...     the pages of each version that was built
    SITE/index.html      leads to the newest release
    SITE/versions.html   lists the versions
    SITE/versions.js     the same list, which the pages of all versions show
    SITE/404.html        for a web server to send where there is no page
"""

import html
import json
import pathlib
import subprocess
import sys
import tempfile

from packaging.version import Version

import tpu_estimator_embedding

ROOT = pathlib.Path(__file__).parent.parent

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{head}<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; padding: 1rem; margin: auto }}
h1 {{ overflow-wrap: anywhere }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}</body>
</html>
"""


class SiteError(Exception):
    """The site could not be built."""


def build(site: pathlib.Path, base: str = "/") -> pathlib.Path:
    """Builds the pages of this version into a site, and lists it beside the others.

    Args:
        site: the directory of the site, with the versions that were built before.
        base: the path under which a web server has the site; 404.html, which is sent for any
            path, links to it.

    Returns:
        The directory of this version.

    Raises:
        SiteError: if Sphinx fails or warns.
    """
    pages = site / tpu_estimator_embedding.__version__
    with tempfile.TemporaryDirectory() as trees:
        done = subprocess.run(
            [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-t", "versions",
             "-d", trees, str(ROOT / "docs"), str(pages)], capture_output=True, text=True)
    if done.returncode:
        raise SiteError(f"the pages could not be built:\n{done.stderr}")
    list_versions(site, base)
    return pages


def list_versions(site: pathlib.Path, base: str) -> None:
    """Writes the files of a site that do not belong to one version."""
    versions = _versions(site)
    newest = next((version for version in versions if not Version(version).is_prerelease),
                  versions[0])
    files = {
        "versions.js": f"window.documentationVersions = {json.dumps(versions)};\n",
        "versions.html": _page("Versions", "<ul>\n" + "".join(
            f'<li><a href="{version}/index.html">{version}</a></li>\n' for version in versions)
            + "</ul>\n"),
        "index.html": _page(
            "tpu_estimator_embedding",
            f'<p><a href="{newest}/index.html">Documentation of version {newest}</a></p>\n',
            f'<meta http-equiv="refresh" content="0; url={newest}/index.html">\n'),
        "404.html": _page(
            "There is no such page",
            f'<form action="{newest}/search.html"><input name="q" aria-label="Search"> '
            f'<button>Search</button></form>\n<p><a href="{newest}/index.html">Documentation of '
            f'version {newest}</a></p>\n<p><a href="versions.html">Other versions</a></p>\n',
            f'<base href="{html.escape(base)}">\n')}
    for name, text in files.items():
        (site / name).write_text(text, encoding="utf-8")


def _versions(site: pathlib.Path) -> list[str]:
    return sorted((path.parent.name for path in site.glob("*/index.html")), key=Version,
                  reverse=True)


def _page(title: str, body: str, head: str = "") -> str:
    return _PAGE.format(title=title, body=body, head=head)
