"""A tree of bytes as a sunburst: one page of HTML that needs nothing but itself."""

import html
import json
from collections.abc import Sequence

from ...analyzers.breakdown import Basis, BreakdownNode
from .sunburst_style import SCRIPT, STYLE

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
{lines}
<main>
<svg id="sunburst" viewBox="-360 -360 720 720" tabindex="0" role="application" aria-label="{title}"></svg>
<section>
<div class="bases" id="bases"></div>
<nav id="path" aria-label="path"></nav>
<table><thead><tr><th>name</th><th>measured</th><th>computed</th><th>share</th></tr></thead>
<tbody id="rows"></tbody></table>
<p>Click or Enter: into a part. Centre, Backspace or Esc: out. Arrows: from part to part.</p>
</section>
</main>
<div id="tip" role="status"></div>
<noscript><p>The drawing needs JavaScript; these figures do not.</p>{table}</noscript>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""

_Row = list["str | int | list[_Row] | None"]


def render_sunburst(title: str, lines: Sequence[str], tree: BreakdownNode, basis: Basis) -> bytes:
    """Return the page.

    Args:
        title: What is drawn.
        lines: Sentences under the title: whose figures these are, and what they are not.
        tree: The tree; its root is the centre.
        basis: The figure that is drawn first; where both are known the page has a button for each.
    """
    data = json.dumps({"basis": basis, "tree": _list_node(tree)}, separators=(",", ":"))
    page = _PAGE.format(
        title=html.escape(title),
        style=STYLE,
        lines="\n".join(f"<p>{html.escape(line)}</p>" for line in lines),
        table=_render_table(tree),
        # A name may hold `</script>`: in JSON the sign may as well be written by its number.
        data=data.replace("<", "\\u003c"),
        script=SCRIPT,
    )
    return page.encode("utf-8", "replace")


def _list_node(node: BreakdownNode) -> _Row:
    """Return name, computed and measured bytes, and the children where there are any."""
    row: _Row = [node.name, node.computed_bytes, node.measured_bytes]
    if node.children:
        row.append([_list_node(child) for child in node.children])
    return row


def _render_table(tree: BreakdownNode) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(node.name)}</td><td>{_show(node.measured_bytes)}</td>"
        f"<td>{_show(node.computed_bytes)}</td></tr>"
        for node in (tree, *tree.children)
    )
    return f"<table><tr><th>name</th><th>measured</th><th>computed</th></tr>{rows}</table>"


def _show(size_bytes: int | None) -> str:
    return "unmeasured" if size_bytes is None else f"{size_bytes:,} B"
