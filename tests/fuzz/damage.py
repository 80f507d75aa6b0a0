"""Damage: bytes, JSON and rows changed at random, towards what breaks programs."""

import json
import math
from random import Random
from typing import Any

DEEP = '["deep", ' * 3000 + "1" + "]" * 3000
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2, 7, 2**31, 2**63, 10**400, -(10**25), 0.5, 1e-300, 1e308, -1e308, math.nan, math.inf,
    "", " ", "x", "0", "nan", "a b c", "é\u0301\u202e", "\ud800", "\x00", "y" * 5000, "( ) " * 3000, "../../etc/hosts",
    [], [[]], [1, True], ["x"], [None], {}, {"x": 1}, {"": None}, [{"x": []}], ["x"] * 500,
]  # fmt: skip
SNIPPETS = [
    b"\xff", b"\x00", b"\xef\xbb\xbf", b"\xff\xfe", b"\r", b"\n", b"\r\n", b"\n\n\n", b"\t", b",", b";", b'"', b"'",
    b"\\", b"\\ud800", b"{", b"}", b"[", b"]", b"[]", b"{}", b"NaN", b"Infinity", b"-1", b"1e999", b"9" * 400, b"null",
    b"true", b"PK\x03\x04", b"\x1f\x8b", b"PAR1", b"../", b"\xc3\xa9", b"\xe2\x80\xae", b"a" * 3000, b"{" * 2000,
]  # fmt: skip


def bytes_damaged(content: bytes, pick: Random) -> bytes:
    """The bytes after one to three changes."""
    for _ in range(pick.choice((1, 1, 2, 3))):
        start = pick.randint(0, len(content))
        end = min(len(content), start + pick.choice((1, 1, 4, 30, 300)))
        match pick.randrange(8):
            case 0 if content:  # a bit the other way round
                place = pick.randrange(len(content))
                changed = content[place] ^ (1 << pick.randrange(8))
                content = content[:place] + bytes([changed]) + content[place + 1 :]
            case 1:
                content = content[:start] + content[end:]
            case 2:
                content = content[:start] + content[start:end] * pick.choice((2, 3, 20)) + content[end:]
            case 3:
                content = content[:start]
            case 4:
                content = content[:start] + pick.randbytes(end - start) + content[end:]
            case 5:
                lines = content.split(b"\n")
                pick.shuffle(lines)
                content = b"\n".join(lines)
            case _:
                content = content[:start] + pick.choice(SNIPPETS) + content[start:]
    return content


def json_damaged(content: Any, pick: Random) -> str:
    """JSON text of the content after one or two of its fields were changed, taken away or renamed."""
    content = json.loads(json.dumps(content))
    for _ in range(pick.choice((1, 1, 2))):
        places = list(_places(content))
        if not places:
            break
        # A field of a small table is as likely as any of a large one, such as a vocabulary.
        holder, key = pick.choice(pick.choice(places))
        match pick.randrange(8):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[f"{key}x"] = holder.pop(key)
            case 2:
                holder[key] = "@deep@"
            case 3 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
                holder[key] = pick.choice((-holder[key], holder[key] * 1000, holder[key] + 1, float(holder[key])))
            case _:
                holder[key] = pick.choice(VALUES)
    return json.dumps(content).replace('"@deep@"', DEEP)


def _places(content: Any) -> list[list[tuple[Any, Any]]]:
    """Where fields are, table by table."""
    waiting, found = [content], []
    while waiting:
        holder = waiting.pop()
        keys: Any = list(holder) if isinstance(holder, dict) else range(len(holder))
        if here := [(holder, key) for key in keys]:
            found.append(here)
        waiting += [holder[key] for key in keys if isinstance(holder[key], dict | list)]
    return found


def rows_damaged(rows: list[dict[str, Any]], pick: Random) -> tuple[list[dict[str, Any]], set[int]]:
    """Rows of which some have a field that is changed or gone, and which ones these are."""
    rows = [dict(row) for row in rows]
    changed = set(pick.sample(range(len(rows)), pick.choice((1, 1, 2, min(5, len(rows))))))
    for place in changed:
        key = pick.choice(list(rows[place]))
        if pick.random() < 0.15:
            del rows[place][key]
        else:
            rows[place][key] = pick.choice(VALUES)
    return rows, changed
