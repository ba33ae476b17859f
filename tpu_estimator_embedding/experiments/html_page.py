# SPDX-License-Identifier: Apache-2.0
"""Creates a self-contained HTML page, which needs no network."""

import base64
import html
from collections.abc import Sequence

_STYLE = """\
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 1080px; margin: 2rem auto; padding: 0 1.5rem; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.25; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
figure { margin: 1.5rem 0; } img { max-width: 100%; height: auto; }
figcaption { color: #444; font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .8rem; border-bottom: 1px solid #ccc;
         vertical-align: top; }
th { background: #f2f2f2; white-space: nowrap; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
pre { background: #f6f6f6; padding: .8rem; overflow-x: auto; font-size: .85rem; }
code { overflow-wrap: anywhere; }
"""


def page(title: str, parts: Sequence[str]) -> str:
    """Returns a complete page; `parts` are results of the functions of this module."""
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title>", f"<style>\n{_STYLE}</style>", "</head>", "<body>",
        f"<h1>{html.escape(title)}</h1>", *parts, "</body>", "</html>", ""])


def heading(text: str) -> str:
    """Returns the heading of a section."""
    return f"<h2>{html.escape(text)}</h2>"


def paragraph(text: str) -> str:
    """Returns a paragraph."""
    return f"<p>{html.escape(text)}</p>"


def preformatted(text: str) -> str:
    """Returns text that keeps its columns; where it is wide, the keyboard can scroll it."""
    return f"<pre tabindex=\"0\">{html.escape(text)}</pre>"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Returns a table; the first row is the header, cells that start with a digit align right.

    >>> table([["table", "rows"], ["words", "1,000"]]).splitlines()[-2]
    '<tr><td>words</td><td class="number">1,000</td></tr>'
    """
    headline, *body = rows
    # It can have the focus, so that the keyboard scrolls it where it is wider than the window.
    lines = ['<div class="wide" tabindex="0" role="group" aria-label="Table"><table>',
             "<tr>" + "".join(f"<th>{html.escape(cell)}</th>" for cell in headline) + "</tr>"]
    for row in body:
        cells = "".join(f"<td{_alignment(cell)}>{html.escape(cell)}</td>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return "\n".join([*lines, "</table></div>"])


def figure(png: bytes, caption: str) -> str:
    """Returns an embedded picture with its caption."""
    data = base64.b64encode(png).decode("ascii")
    text = html.escape(caption, quote=True)
    return (f'<figure><img alt="{text}" src="data:image/png;base64,{data}">'
            f"<figcaption>{text}</figcaption></figure>")


def _alignment(cell: str) -> str:
    is_number = cell[:1].isdigit() or (cell[:1] == "-" and cell[1:2].isdigit())
    return ' class="number"' if is_number and len(cell) < 24 else ""
