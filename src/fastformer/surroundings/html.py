"""Pages that open offline: they forbid the network, and every script but their own, which is known by its hash."""

import base64
import hashlib


def head(title: str, style: str, script: str = "", *, served: bool = False, further: str = "") -> str:
    """All before the body of a page. `further` adds to what its content may do (Content-Security-Policy).

    Of a page that is `served` a browser would ask the server for an icon: it has an empty one.
    """
    policy = ["default-src 'none'", "style-src 'unsafe-inline'"]
    if script:
        policy.append(f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'")
    if served:
        policy.append("img-src data:")
    if further:
        policy.append(further)
    icon = '<link rel="icon" href="data:,">\n' if served else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{"; ".join(policy)}">
{icon}<title>{title}</title>
<style>
{style}
</style>
</head>"""
