-- What must survive a restart. Models are keyed by name, because ids are given anew at each start.
-- Times are Unix milliseconds, lengths milliseconds, sizes bytes.

CREATE TABLE overrides (
    model       TEXT PRIMARY KEY,
    priority    INTEGER,
    keep_hot_ms INTEGER,
    expires_at  INTEGER
) STRICT;

CREATE TABLE loads (
    model    TEXT PRIMARY KEY,
    replicas INTEGER NOT NULL,
    devices  INTEGER,
    since_at INTEGER NOT NULL
) STRICT;

CREATE TABLE registrations (
    name     TEXT PRIMARY KEY,
    document TEXT NOT NULL
) STRICT;

-- AUTOINCREMENT: an id is never given twice, also not after the oldest rows were deleted, so that
-- a client may ask for what came after the last id it saw.
CREATE TABLE history (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    model      TEXT,
    replica    INTEGER,
    order_id   INTEGER,
    reason     TEXT NOT NULL,
    priority   INTEGER,
    placement  TEXT NOT NULL,
    candidates TEXT NOT NULL,
    memory     TEXT NOT NULL,
    took_ms    INTEGER
) STRICT;

CREATE INDEX history_by_model ON history (model, id);
CREATE INDEX history_by_kind ON history (kind, id);
CREATE INDEX history_by_time ON history (at);

CREATE TABLE measurements (
    model                 TEXT NOT NULL,
    key                   TEXT NOT NULL,
    peak_bytes_per_device INTEGER NOT NULL,
    reload_ms             INTEGER NOT NULL,
    at                    INTEGER NOT NULL,
    PRIMARY KEY (model, key)
) STRICT;

CREATE TABLE keys (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT NOT NULL,
    role         TEXT NOT NULL CHECK (role IN ('admin', 'user')),
    prefix       TEXT NOT NULL,
    hash         BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER,
    expires_at   INTEGER,
    revoked      INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
