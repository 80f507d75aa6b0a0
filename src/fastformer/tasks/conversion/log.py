"""What users did, in a file that survives a crash: an SQLite database of texts by user.

A behaviour is on the disk before `add` returns. Of each user as many are kept as the model reads.
"""

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

from fastformer.errors import UserError

_TABLE = """
CREATE TABLE IF NOT EXISTS behaviors (number INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, text TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS by_user ON behaviors (user, number);
"""
_LATEST = "SELECT text FROM behaviors WHERE user = ? ORDER BY number DESC LIMIT ?"
_FORGET = "DELETE FROM behaviors WHERE user = ?"
_FORGET_OLD = """
DELETE FROM behaviors WHERE user = ?1 AND number <= (
    SELECT number FROM behaviors WHERE user = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2
)
"""
_SECONDS = 30  # to wait for another process that writes


class BehaviorLog:
    """The latest behaviours of every user. Threads, and processes, may share it."""

    def __init__(self, path: str | Path, most: int):
        self.path, self.most = Path(path), most
        self._lock = threading.Lock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(self.path, timeout=_SECONDS, check_same_thread=False, isolation_level=None)
            self._database.execute("PRAGMA journal_mode = WAL")  # readers do not wait for a writer
            self._database.execute("PRAGMA synchronous = FULL")  # on the disk, not only on its way
            self._database.executescript(_TABLE)
        except (sqlite3.Error, OSError) as error:
            raise UserError(f"{self.path}: cannot be used to keep behaviours ({error}); give another place") from error

    def add(self, user: str, texts: Sequence[str], anew: bool = False) -> None:
        """The user did something, the latest last; with `anew` in place of all that is known."""
        with self._lock, _transaction(self._database):
            if anew:
                self._database.execute(_FORGET, (user,))
            rows = [(user, text) for text in texts[-self.most :]]
            self._database.executemany("INSERT INTO behaviors (user, text) VALUES (?, ?)", rows)
            self._database.execute(_FORGET_OLD, (user, self.most))

    def of(self, user: str) -> list[str]:
        """What the user did, the latest last."""
        with self._lock:
            found = self._database.execute(_LATEST, (user, self.most)).fetchall()
        return [text for (text,) in reversed(found)]

    def forget(self, user: str) -> None:
        """Remove all that is known of a user."""
        with self._lock, _transaction(self._database):
            self._database.execute(_FORGET, (user,))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()


class _transaction:
    """All of it, or nothing."""

    def __init__(self, database: sqlite3.Connection):
        self.database = database

    def __enter__(self) -> None:
        self.database.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type | None, *error: object) -> None:
        self.database.execute("COMMIT" if kind is None else "ROLLBACK")
