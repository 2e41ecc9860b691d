"""The tables of a recording, and the check that a file has these and no others."""

import sqlite3
from pathlib import Path
from typing import Final

from ..errors import InputFileError
from ..files.base.input_file import show_path

SUFFIX: Final = ".vscope"
# `VSCP`; at byte 68 of the file, as the file format of SQLite says.
APPLICATION_ID: Final = 0x56534350
SCHEMA_MAJOR = 1
# Files of a newer major version are refused; a newer minor one has more, which is ignored.
SCHEMA_MINOR = 0
_MINORS = 1000

# No text or blob is longer; SQLite refuses what is.
MOST_VALUE_BYTES = 33 << 20

TABLES: Final = {
    "meta": "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
    "nodes": "CREATE TABLE nodes (id INTEGER PRIMARY KEY, name TEXT NOT NULL)",
    "devices": "CREATE TABLE devices (id INTEGER PRIMARY KEY, device BLOB NOT NULL)",
    "layouts": "CREATE TABLE layouts (id INTEGER PRIMARY KEY, columns BLOB NOT NULL)",
    "ticks": (
        "CREATE TABLE ticks (tick INTEGER PRIMARY KEY, node INTEGER NOT NULL, time_s REAL NOT NULL, "
        "sample BLOB NOT NULL)"
    ),
    "told": (
        "CREATE TABLE told (id INTEGER PRIMARY KEY, node INTEGER NOT NULL, time_s REAL NOT NULL, "
        "words BLOB NOT NULL)"
    ),
    "blocks": (
        "CREATE TABLE blocks (id INTEGER PRIMARY KEY, node INTEGER NOT NULL, first_tick INTEGER NOT NULL, "
        "last_tick INTEGER NOT NULL, start_s REAL NOT NULL, end_s REAL NOT NULL, samples INTEGER NOT NULL, "
        "device_samples INTEGER NOT NULL, layout INTEGER NOT NULL, raw_bytes INTEGER NOT NULL, "
        "body BLOB NOT NULL, told INTEGER NOT NULL, told_raw_bytes INTEGER NOT NULL, told_body BLOB NOT NULL)"
    ),
    "blocks_by_time": (
        "CREATE INDEX blocks_by_time ON blocks (start_s, end_s, node, first_tick, samples, device_samples)"
    ),
    "overview": (
        "CREATE TABLE overview (minute INTEGER NOT NULL, node INTEGER NOT NULL, figures BLOB NOT NULL, "
        "PRIMARY KEY (minute, node)) WITHOUT ROWID"
    ),
    "findings": (
        "CREATE TABLE findings (id TEXT PRIMARY KEY, opened_s REAL NOT NULL, finding BLOB NOT NULL) "
        "WITHOUT ROWID"
    ),
    "events": "CREATE TABLE events (id INTEGER PRIMARY KEY, time_s REAL NOT NULL, event BLOB NOT NULL)",
}


def create_schema(connection: sqlite3.Connection, identity: bytes) -> None:
    """Create all tables at once, so that no reader finds a part of them."""
    connection.execute("BEGIN")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # writes a page by itself, were it outside
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_MAJOR * _MINORS + SCHEMA_MINOR}")
    for statement in TABLES.values():
        connection.execute(statement)
    connection.execute("INSERT INTO meta VALUES ('identity', ?)", (identity,))
    connection.execute("COMMIT")


def check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse what is no recording, is of a newer version, or has more than a recording may."""
    name = show_path(path)
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise InputFileError(f"{name}: an SQLite database, but not a vramscope recording (*{SUFFIX})")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    major, minor = divmod(version, _MINORS)
    if major != SCHEMA_MAJOR:
        raise InputFileError(
            f"{name}: a recording of schema version {major}; expected {SCHEMA_MAJOR}: read it with the "
            "version of vramscope that wrote it, or a newer one"
        )
    known = {(key, statement) for key, statement in TABLES.items()}
    found = set(connection.execute("SELECT name, sql FROM sqlite_master LIMIT 100"))
    strange = sorted(str(key) for key, _ in found - known)
    is_newer_with_tables = minor > SCHEMA_MINOR and all(
        isinstance(sql, str) and sql.startswith("CREATE TABLE ") for _, sql in found - known
    )
    if strange and not is_newer_with_tables:
        raise InputFileError(f"{name}: has {strange[0]!a}, which no recording has; expected only its tables")
    missing = sorted(key for key, _ in known - found)
    if missing:
        raise InputFileError(f"{name}: has no {missing[0]}; expected the tables of a recording")
