"""The records of the store, in SQLite: images, their names, layers, and what uses them.

Each method is one transaction, or part of a larger one. The store calls those that change files and
records together under its lock.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from hekla.images.documents import ImageConfig
from hekla.images.errors import DiskFull, StoreError
from hekla.images.garbage import ImageUse
from hekla.units.private_directory import create_private

__all__ = ["Catalog", "Image", "LayerRecord", "SifFacts"]

BUSY_TIMEOUT_S: Final = 30.0
FORMAT: Final = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS images (
    digest    TEXT PRIMARY KEY,
    record    BLOB NOT NULL,
    last_used REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS names (name TEXT PRIMARY KEY, digest TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS layers (key TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS pins (
    holder TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (holder, digest)
);
CREATE TABLE IF NOT EXISTS holds (
    ingest TEXT NOT NULL,
    key    TEXT NOT NULL,
    PRIMARY KEY (ingest, key)
);
"""


class SifFacts(msgspec.Struct, frozen=True):
    """What a SIF image has of Apptainer's conventions."""

    has_shell: bool
    """With which its environment scripts are read."""
    has_runscript: bool


class Image(msgspec.Struct, frozen=True):
    """An image of the store."""

    digest: str
    """Of its manifest, or of a SIF file."""
    config_digest: str
    layers: tuple[str, ...]
    """Keys of its layers, bottom layer first."""
    config: ImageConfig
    pullable: bool = True
    """It can be brought in again; False for an image that was loaded from a file."""
    sif: SifFacts | None = None
    """None for a container image."""


class LayerRecord(msgspec.Struct, frozen=True):
    """A layer of the store."""

    diff_id: str
    disk_bytes: int
    entries: int


class Catalog:
    """Reads and writes the records. It may be used from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        create_private(path)
        try:
            self._connection = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            with self.transaction():
                (version,) = self._connection.execute("PRAGMA user_version").fetchone()
                if version not in (0, FORMAT):
                    raise StoreError(f"{path} is from a newer hekla; use that one, or move it away")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            with self.transaction():
                for statement in _SCHEMA.split(";"):
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version = {FORMAT}")
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Read and write as one; the outermost one of a thread counts."""
        with self._lock:
            if self._connection.in_transaction:
                yield self._connection
                return
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield self._connection
                except BaseException:
                    self._connection.execute("ROLLBACK")
                    raise
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise self._unusable(error) from error

    # Images

    def put_image(self, image: Image, names: Iterable[str], now: float, holder: str = "") -> None:
        """Record an image and names of it, and that `holder` uses it if one is given."""
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO images VALUES (?, ?, ?) ON CONFLICT (digest) DO UPDATE SET "
                "record = excluded.record, last_used = max(last_used, excluded.last_used)",
                (image.digest, msgspec.json.encode(image), now),
            )
            connection.executemany(
                "INSERT OR REPLACE INTO names VALUES (?, ?)",
                [(name, image.digest) for name in names],
            )
            if holder:
                self.pin(image.digest, holder, now)

    def find(self, name: str) -> Image | None:
        """Return the image with a name or digest."""
        with self.transaction() as connection:
            row = connection.execute(
                "SELECT record FROM images WHERE digest = ?1 "
                "OR digest = (SELECT digest FROM names WHERE name = ?1)",
                (name,),
            ).fetchone()
        return msgspec.json.decode(row[0], type=Image) if row else None

    def images(self) -> list[tuple[Image, tuple[str, ...], float]]:
        """Return all images with their names and last uses."""
        with self.transaction() as connection:
            names: dict[str, list[str]] = {}
            for name, digest in connection.execute("SELECT name, digest FROM names ORDER BY name"):
                names.setdefault(digest, []).append(name)
            rows = connection.execute("SELECT record, last_used FROM images").fetchall()
        found = [(msgspec.json.decode(record, type=Image), used) for record, used in rows]
        return [(image, tuple(names.get(image.digest, ())), used) for image, used in found]

    def remove_name(self, name: str) -> None:
        with self.transaction() as connection:
            connection.execute("DELETE FROM names WHERE name = ?", (name,))

    def remove_names_of(self, name: str) -> None:
        """Remove names that are the given one with something after @."""
        with self.transaction() as connection:
            connection.execute(
                "DELETE FROM names WHERE substr(name, 1, length(?1)) = ?1", (f"{name}@",)
            )

    def touch(self, digest: str, now: float) -> None:
        with self.transaction() as connection:
            connection.execute("UPDATE images SET last_used = ? WHERE digest = ?", (now, digest))

    # Layers

    def put_layer(self, key: str, record: LayerRecord, ingest: str) -> None:
        """Record a layer, and that a pull needs it."""
        with self.transaction() as connection:
            encoded = msgspec.json.encode(record)
            connection.execute("INSERT OR REPLACE INTO layers VALUES (?, ?)", (key, encoded))
            connection.execute("INSERT OR IGNORE INTO holds VALUES (?, ?)", (ingest, key))

    def hold_layer(self, key: str, ingest: str) -> bool:
        """Keep a layer for a pull; return whether it exists."""
        with self.transaction() as connection:
            if not connection.execute("SELECT 1 FROM layers WHERE key = ?", (key,)).fetchone():
                return False
            connection.execute("INSERT OR IGNORE INTO holds VALUES (?, ?)", (ingest, key))
            return True

    def release_layers(self, ingest: str) -> None:
        with self.transaction() as connection:
            connection.execute("DELETE FROM holds WHERE ingest = ?", (ingest,))

    def layers(self) -> dict[str, LayerRecord]:
        with self.transaction() as connection:
            rows = connection.execute("SELECT key, record FROM layers").fetchall()
        return {key: msgspec.json.decode(record, type=LayerRecord) for key, record in rows}

    def held(self) -> dict[str, set[str]]:
        """Return the layers that pulls need, by pull."""
        found: dict[str, set[str]] = {}
        with self.transaction() as connection:
            for ingest, key in connection.execute("SELECT ingest, key FROM holds"):
                found.setdefault(ingest, set()).add(key)
        return found

    # Pins

    def pin(self, digest: str, holder: str, now: float) -> bool:
        """Record that a container uses an image; return whether the image exists."""
        with self.transaction() as connection:
            if not connection.execute(
                "UPDATE images SET last_used = ? WHERE digest = ?", (now, digest)
            ).rowcount:
                return False
            connection.execute("INSERT OR IGNORE INTO pins VALUES (?, ?)", (holder, digest))
            return True

    def unpin(self, holder: str, now: float) -> None:
        """Record that a container no longer uses its images."""
        with self.transaction() as connection:
            connection.execute(
                "UPDATE images SET last_used = ? "
                "WHERE digest IN (SELECT digest FROM pins WHERE holder = ?)",
                (now, holder),
            )
            connection.execute("DELETE FROM pins WHERE holder = ?", (holder,))

    def pins(self) -> dict[str, set[str]]:
        """Return the images in use, by holder."""
        found: dict[str, set[str]] = {}
        with self.transaction() as connection:
            for holder, digest in connection.execute("SELECT holder, digest FROM pins"):
                found.setdefault(holder, set()).add(digest)
        return found

    # Deletion

    def uses(self, in_use: Iterable[str] = ()) -> list[ImageUse]:
        pinned = set(in_use).union(*self.pins().values())
        return [
            ImageUse(image.digest, image.layers, used, image.digest in pinned, image.pullable)
            for image, _, used in self.images()
        ]

    def delete(self, images: Iterable[str], layers: Iterable[str]) -> None:
        with self.transaction() as connection:
            for digest in images:
                connection.execute("DELETE FROM images WHERE digest = ?", (digest,))
                connection.execute("DELETE FROM names WHERE digest = ?", (digest,))
            connection.executemany("DELETE FROM layers WHERE key = ?", [(key,) for key in layers])

    def _unusable(self, error: sqlite3.Error) -> StoreError:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
            return DiskFull(f"the disk is full: {self._path} cannot be written; free disk space")
        return StoreError(
            f"the records of images in {self._path} cannot be used: {error}; if the file is "
            f"damaged, delete {self._path.parent}: images are pulled again"
        )
