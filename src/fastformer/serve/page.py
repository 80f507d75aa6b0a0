"""The page of a server, and the list of its routes: self-contained, without anything from elsewhere.

Their looks are those of the explain page (`explain/page.css`), and what these two add (`page.css`).
"""

import html
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

from fastformer.surroundings.html import head
from fastformer.version import __version__

_ALLOWED = "connect-src 'self'; base-uri 'none'; form-action 'none'"
_ROUTES = """{head}
<body class="serve routes">
<header><p class="run">fastformer {version} · <a href=".">The page</a> · <a href="openapi.json">openapi.json</a></p>
<h1>Routes</h1>
<p class="note">{about}</p></header>
<main>
"""


@cache
def page() -> str:
    """`GET /`."""
    script = _file("fastformer.serve", "page.js")
    return Template(_file("fastformer.serve", "page.html")).substitute(
        head=head("fastformer", _style(), script, served=True, further=_ALLOWED),
        version=__version__,
        script=script,
    )


def routes_page(description: Mapping[str, Any], address: str) -> str:
    """`GET /docs`: an OpenAPI description as a page, each route with a request to try; `address` is the server's."""
    about = _written(description["info"]["description"])
    parts = [_ROUTES.format(head=head("Routes · fastformer", _style(), served=True), version=__version__, about=about)]
    schemas = description.get("components", {}).get("schemas", {})
    for path, methods in description["paths"].items():
        for method, route in methods.items():
            parts.append(_route(path, method.upper(), route, schemas, address))
    return "\n".join([*parts, "</main>", "</body>", "</html>", ""])


def _route(path: str, method: str, route: Mapping[str, Any], schemas: Mapping[str, Any], address: str) -> str:
    content = route.get("requestBody", {}).get("content", {}).get("application/json", {})
    lines = [
        "<section>",
        f"<h2><code>{method} {html.escape(path)}</code></h2>",
        f"<p>{_written(route.get('summary', ''))}.</p>",
    ]
    if (more := route.get("description", "")) and more.rstrip(".") != route.get("summary"):
        lines += [f'<p class="note">{_written(part)}</p>' for part in more.split("\n\n")]
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    fields = ["".join(map(_cell, row)) for row in _fields(schemas.get(name, {}))]
    if fields:
        names = '<tr><th scope="col">field</th><th scope="col">kind</th><th scope="col">meaning</th></tr>'
        label = html.escape(f"Fields of {method} {path}")
        rows = "".join(f"<tr>{row}</tr>" for row in fields)
        region = f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        lines.append(f"{region}<table><thead>{names}</thead><tbody>{rows}</tbody></table></div>")
    for example in content.get("examples", {}).values():
        body = json.dumps(example["value"], ensure_ascii=False).replace("'", "'\\''")
        command = f"curl {address.rstrip('/')}{path} -H 'Content-Type: application/json' -d '{body}'"
        lines.append(f'<pre tabindex="0"><code>{html.escape(command)}</code></pre>')
        break
    return "\n".join([*lines, "</section>"])


def _cell(written: str) -> str:
    return f"<td>{_written(written)}</td>"


def _written(text: str) -> str:
    """A text as HTML, what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _fields(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Name, kind and meaning of each field of a request."""
    for name, field in schema.get("properties", {}).items():
        kinds = [one.get("type", "object") for one in field.get("anyOf", [field])]
        kind = " or ".join(dict.fromkeys(one for one in kinds if one != "null"))
        needed = name in schema.get("required", ())
        default = field.get("default")
        written = "needed" if needed else f"default {json.dumps(default)}" if default is not None else "may be left out"
        yield name, f"{kind}, {written}", field.get("description", "")


def _style() -> str:
    return _file("fastformer.explain", "page.css") + "\n" + _file("fastformer.serve", "page.css")


def _file(package: str, name: str) -> str:
    return (files(package) / name).read_text(encoding="utf-8")
