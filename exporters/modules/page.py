"""The five sunburst pages of a profile, under the names that InternLM's profiler gave them."""

import html
import json
from collections.abc import Sequence
from pathlib import Path

from ...analyzers.modules import (
    Basis,
    Breakdown,
    BreakdownNode,
    choose_basis,
    explain_differences,
    make_point_tree,
)
from ...engine.files.base.output_file import write_files
from ...engine.model.sample import MemoryKind, ModuleMemory

PAGES: dict[str, tuple[MemoryKind, ...]] = {
    "params_memory_sunburst": ("params",),
    "grads_memory_sunburst": ("grads",),
    "os_memory_sunburst": ("os_params", "os_state"),
    "activation_memory_sunburst": ("activation",),
    "summary_sunburst": ("params", "grads", "os_params", "os_state", "activation"),
}
"""Kinds by the name of the page."""
_WORDS = {
    "params_memory_sunburst": "parameters",
    "grads_memory_sunburst": "gradients",
    "os_memory_sunburst": "optimizer",
    "activation_memory_sunburst": "activations",
    "summary_sunburst": "all kinds",
}


def write_sunbursts(memory: ModuleMemory, breakdown: Breakdown, folder: Path) -> list[Path]:
    """Write the pages that have a tree; return their paths.

    Raises:
        OutputFileError: It cannot be written to.
    """
    trees = {name: join_kinds(memory, name) for name in PAGES}
    pages = {
        f"{name}.html": render_page(memory, breakdown, name, tree)
        for name, tree in trees.items()
        if tree is not None
    }
    return write_files(pages, folder)


def join_kinds(memory: ModuleMemory, name: str) -> BreakdownNode | None:
    """Return the tree of a page over the whole profile; None if the profile has no kind of it."""
    return make_point_tree(memory, PAGES[name], None, _WORDS[name])


def render_page(memory: ModuleMemory, breakdown: Breakdown, name: str, tree: BreakdownNode) -> bytes:
    whose = "" if memory.rank is None else f", rank {memory.rank.rank}"
    basis: Basis = choose_basis(tree)
    lines = [describe_origin(memory)]
    if name == "summary_sunburst":
        lines += explain_differences(breakdown)
    return render_sunburst(f"Memory by module: {_WORDS[name]}{whose}", lines, tree, basis)


def describe_origin(memory: ModuleMemory) -> str:
    """Return the origin of a profile's values, in one sentence."""
    if memory.format != "module memory":
        return "; ".join(memory.notes)
    on = f"on {memory.device}" if memory.device else "of an unnamed device"
    simulated = " (simulated device)" if memory.is_simulated else ""
    return f"measured: bytes of the tensors' storages {on}{simulated}; computed: from their shapes"


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
<noscript><p>The drawing needs JavaScript; this table does not.</p>{table}</noscript>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""

_Row = list["str | int | list[_Row] | None"]


def render_sunburst(title: str, lines: Sequence[str], tree: BreakdownNode, basis: Basis) -> bytes:
    """Return the page, which draws `basis` first; where both are known it has a button for each."""
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


# The colours are of Okabe and Ito (Color Universal Design, 2008), made lighter by depth. They only separate
# neighbours: every size is in the list next to the drawing and in the text under the pointer.
STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --faint: #d9d9d9; --soft: #595959; --paper: #ffffff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #ececec; --faint: #454545; --soft: #b4b4b4; --paper: #16181b; }
}
* { box-sizing: border-box; }
body { margin: 0; padding: 1rem 1.25rem; background: var(--paper); color: var(--ink);
  font: 15px/1.45 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.25rem; margin: 0; }
p { margin: .2rem 0; color: var(--soft); }
main { display: flex; flex-wrap: wrap; gap: 1.5rem; margin-top: .75rem; }
svg { flex: 1 1 26rem; max-width: 46rem; max-height: calc(100vh - 10rem); min-height: 18rem; }
section { flex: 1 1 20rem; min-width: 18rem; }
path { stroke: var(--paper); cursor: pointer; }
path.chosen { stroke: var(--ink); stroke-width: 3; }
svg text { font-size: 11px; fill: #1a1a1a; pointer-events: none; }
svg text.centre { fill: var(--ink); font-size: 15px; font-weight: 600; text-anchor: middle; }
svg:focus-visible, button:focus-visible { outline: 3px solid #0072b2; outline-offset: 2px; }
button { font: inherit; color: inherit; background: none; border: 1px solid var(--faint);
  border-radius: 4px; padding: .15rem .5rem; cursor: pointer; }
button[aria-pressed=true] { border-color: var(--ink); font-weight: 600; }
nav, .bases { display: flex; flex-wrap: wrap; gap: .35rem; align-items: center; margin-bottom: .6rem; }
table { border-collapse: collapse; width: 100%; }
th { text-align: right; font-weight: 400; color: var(--soft); } th:first-child { text-align: left; }
td { border-top: 1px solid var(--faint); padding: .15rem .3rem; text-align: right;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; }
td button { border: 0; padding: 0; text-decoration: underline; text-align: left; }
.swatch { display: inline-block; width: .7em; height: .7em; margin-right: .4em;
  border: 1px solid var(--soft); }
#tip { position: fixed; display: none; pointer-events: none; background: var(--paper); color: var(--ink);
  border: 1px solid var(--soft); border-radius: 4px; padding: .3rem .5rem; max-width: 30rem;
  overflow-wrap: anywhere; white-space: pre-line; z-index: 2; }
"""

SCRIPT = """
(function () {
"use strict";
var page = JSON.parse(document.getElementById("data").textContent);
var NAME = 0, COMPUTED = 1, MEASURED = 2, CHILDREN = 3, RINGS = 6, SIZE = 720, HOLE = 64;
var HUES = ["#56b4e9", "#e69f00", "#009e73", "#f0e442", "#cc79a7", "#d55e00", "#80b8d8", "#b3b3b3"];
var svg = document.getElementById("sunburst"), tip = document.getElementById("tip");
var basis = page.basis === "measured" ? MEASURED : COMPUTED, focus = [], chosen = null, arcs = [];

function sizeOf(node) { return Math.max(0, node[basis] || 0); }
function nodeAt(path) { return path.reduce(function (node, i) { return node[CHILDREN][i]; }, page.tree); }
function exact(bytes) { return bytes === null ? "unmeasured" : bytes.toLocaleString("en") + " B"; }
function short(bytes) {
  if (bytes === null) { return "\\u2014"; }
  var units = ["B", "KiB", "MiB", "GiB", "TiB"], i = 0, value = bytes;
  while (Math.abs(value) >= 1024 && i < 4) { value /= 1024; i += 1; }
  return (i && Math.abs(value) < 100 ? value.toFixed(1) : value.toFixed(0)) + " " + units[i];
}
function share(node, whole) { return sizeOf(whole) ? 100 * sizeOf(node) / sizeOf(whole) : 0; }
function names(path) {
  var found = path.map(function (_, i) { return nodeAt(path.slice(0, i + 1))[NAME]; });
  return found.join(".") || page.tree[NAME];
}
function describe(path) {
  var node = nodeAt(path);
  return names(path) + "\\nmeasured " + exact(node[MEASURED]) + "\\ncomputed " + exact(node[COMPUTED]) +
    "\\n" + share(node, page.tree).toFixed(1) + " % of " + short(sizeOf(page.tree));
}
function colour(path) {
  var hue = HUES[path[0] % HUES.length] || "#999999", light = Math.min(0.72, 0.16 * (path.length - 1));
  var odd = path.length > 1 && path[path.length - 1] % 2 ? 0.08 : 0;
  var mix = [1, 3, 5].map(function (i) {
    var part = parseInt(hue.substr(i, 2), 16);
    return Math.round(part + (255 - part) * Math.min(0.8, light + odd));
  });
  return "rgb(" + mix.join(",") + ")";
}
function element(name, attributes) {
  var made = document.createElementNS("http://www.w3.org/2000/svg", name);
  Object.keys(attributes).forEach(function (key) { made.setAttribute(key, attributes[key]); });
  return made;
}
function point(radius, turn) {
  var angle = 2 * Math.PI * turn - Math.PI / 2;
  return (radius * Math.cos(angle)).toFixed(2) + " " + (radius * Math.sin(angle)).toFixed(2);
}
function outline(from, to, inner, outer) {
  if (to - from > 0.99999) { to = from + 0.99999; }
  var large = to - from > 0.5 ? 1 : 0;
  return "M" + point(outer, from) + "A" + outer + " " + outer + " 0 " + large + " 1 " + point(outer, to) +
    "L" + point(inner, to) + "A" + inner + " " + inner + " 0 " + large + " 0 " + point(inner, from) + "Z";
}
function depthBelow(node, most) {
  if (!most || !node[CHILDREN]) { return 0; }
  return node[CHILDREN].reduce(function (deepest, child) {
    return sizeOf(child) ? Math.max(deepest, 1 + depthBelow(child, most - 1)) : deepest;
  }, 0);
}
function drawRing(path, from, whole, depth, rings, width) {
  var node = nodeAt(path), left = sizeOf(node);
  (node[CHILDREN] || []).forEach(function (child, i) {
    var taken = Math.min(sizeOf(child), left), to = from + taken / whole, here = path.concat(i);
    left -= taken;
    if (taken / whole > 0.0004) {
      var inner = HOLE + (depth - 1) * width, arc = element("path",
        { d: outline(from, to, inner, inner + width), fill: colour(here), role: "img",
          "stroke-width": Math.min(1.2, inner * (to - from)).toFixed(2) });
      arc.setAttribute("aria-label", describe(here).replace(/\\n/g, ", "));
      arc.addEventListener("click", function () { choose(here); zoom(child[CHILDREN] ? here : path); });
      arc.addEventListener("mousemove", function (event) { showTip(event.clientX, event.clientY, here); });
      arc.addEventListener("mouseleave", hideTip);
      svg.appendChild(arc); arcs.push({ path: here, arc: arc });
      label(child[NAME], from, to, inner, width);
      if (depth < rings) { drawRing(here, from, whole, depth + 1, rings, width); }
    }
    from = to;
  });
}
function label(text, from, to, inner, width) {
  var radius = inner + width / 2, turn = (from + to) / 2, room = 2 * Math.PI * radius * (to - from);
  var along = room > 6.4 * text.length + 8 && to - from < 0.9, fits = Math.floor(width / 6.4);
  if (!along && (room < 13 || fits < 3)) { return; }
  var lower = turn > 0.25 && turn < 0.75, angle = 360 * turn - 90, turned = along ? (lower ? -90 : 90) :
    (turn > 0.5 ? 180 : 0);
  svg.appendChild(element("text", { "text-anchor": "middle", "dominant-baseline": "central",
    transform: "rotate(" + angle + ") translate(" + radius + " 0) rotate(" + turned + ")" }))
    .textContent = along || text.length <= fits ? text : text.slice(0, fits - 1) + "\\u2026";
}
function draw() {
  svg.textContent = ""; arcs = [];
  var node = nodeAt(focus), rings = Math.max(1, depthBelow(node, RINGS));
  var width = (SIZE / 2 - HOLE - 4) / rings;
  var hole = element("circle", { r: HOLE - 2, fill: "transparent", stroke: "var(--faint)" });
  hole.addEventListener("click", up); svg.appendChild(hole);
  if (sizeOf(node)) { drawRing(focus, 0, sizeOf(node), 1, rings, width); }
  svg.appendChild(element("text", { class: "centre", y: -6 })).textContent =
    node[NAME].length > 14 ? node[NAME].slice(0, 13) + "\\u2026" : node[NAME];
  svg.appendChild(element("text", { class: "centre", y: 14 })).textContent = short(sizeOf(node));
  mark(); drawPath(); drawList(node);
}
function button(text, action, parent) {
  var made = document.createElement("button");
  made.type = "button"; made.textContent = text; made.addEventListener("click", action);
  parent.appendChild(made); return made;
}
function drawPath() {
  var nav = document.getElementById("path"); nav.textContent = "";
  for (var i = 0; i <= focus.length; i += 1) { (function (path) {
    button(nodeAt(path)[NAME], function () { zoom(path); }, nav);
  })(focus.slice(0, i)); }
}
function drawList(node) {
  var body = document.getElementById("rows"); body.textContent = "";
  (node[CHILDREN] || [node]).forEach(function (child, i) {
    var row = body.insertRow(), path = node[CHILDREN] ? focus.concat(i) : focus, first = row.insertCell();
    var swatch = document.createElement("span");
    swatch.className = "swatch"; swatch.style.background = path.length ? colour(path) : "none";
    first.appendChild(swatch);
    if (child[CHILDREN] && path !== focus) { button(child[NAME], function () { zoom(path); }, first); }
    else { first.appendChild(document.createTextNode(child[NAME])); }
    [exact(child[MEASURED]), exact(child[COMPUTED]), share(child, node).toFixed(1) + " %"].forEach(
      function (text) { row.insertCell().textContent = text; });
  });
}
function zoom(path) { focus = path; hideTip(); draw(); }
function up() { if (focus.length) { var from = focus; zoom(focus.slice(0, -1)); choose(from); } }
function choose(path) { chosen = path; mark(); }
function mark() {
  arcs.forEach(function (each) {
    var isChosen = chosen && each.path.join() === chosen.join();
    each.arc.setAttribute("class", isChosen ? "chosen" : "");
    if (isChosen) { svg.appendChild(each.arc); svg.setAttribute("aria-label", describe(each.path)); }
  });
  Array.prototype.slice.call(svg.querySelectorAll("text")).forEach(function (text) {
    svg.appendChild(text);
  });
}
function showTip(x, y, path) {
  tip.textContent = describe(path); tip.style.display = "block";
  tip.style.left = Math.min(x + 14, window.innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(y + 14, window.innerHeight - tip.offsetHeight - 8) + "px";
}
function hideTip() { tip.style.display = "none"; }
function move(key) {
  var paths = arcs.map(function (each) { return each.path; });
  if (!paths.length) { return; }
  var at = paths.findIndex(function (path) { return chosen && path.join() === chosen.join(); });
  if (at < 0) { choose(paths[0]); return; }
  var now = paths[at], near = paths.filter(function (path) {
    if (key === "ArrowDown") { return path.join() === now.slice(0, -1).join(); }
    if (key === "ArrowUp") { return path.length > now.length && path.slice(0, -1).join() === now.join(); }
    return path.length === now.length;
  });
  if (key === "ArrowLeft" || key === "ArrowRight") {
    var place = near.findIndex(function (path) { return path.join() === now.join(); });
    choose(near[(place + (key === "ArrowRight" ? 1 : near.length - 1)) % near.length]);
  } else if (near.length) { choose(near[0]); }
}
svg.addEventListener("keydown", function (event) {
  if (event.key.indexOf("Arrow") === 0) { move(event.key); showChosen(); }
  else if (event.key === "Enter" && chosen && nodeAt(chosen)[CHILDREN]) { zoom(chosen); }
  else if (event.key === "Backspace" || event.key === "Escape") { up(); }
  else { return; }
  event.preventDefault();
});
svg.addEventListener("blur", hideTip);
function showChosen() {
  var found = arcs.filter(function (each) { return chosen && each.path.join() === chosen.join(); })[0];
  if (!found) { return; }
  var box = found.arc.getBoundingClientRect();
  showTip(box.left + box.width / 2, box.top, chosen);
}
["measured", "computed"].forEach(function (name) {
  var which = name === "measured" ? MEASURED : COMPUTED, place = document.getElementById("bases");
  if (page.tree[which] === null) { return; }
  var made = button(name, function () { basis = which; chosen = null; press(); draw(); }, place);
  made.dataset.basis = which;
});
function press() {
  document.querySelectorAll("#bases button").forEach(function (each) {
    each.setAttribute("aria-pressed", String(Number(each.dataset.basis) === basis));
  });
}
press(); draw();
})();
"""
