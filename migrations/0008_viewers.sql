-- Keys that may read everything and change nothing. SQLite cannot change the check of a table, so that the table
-- is made anew; the ids stay.
CREATE TABLE keys_with_viewers (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT NOT NULL,
    role         TEXT NOT NULL CHECK (role IN ('admin', 'user', 'viewer')),
    prefix       TEXT NOT NULL,
    hash         BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER,
    expires_at   INTEGER,
    revoked      INTEGER NOT NULL DEFAULT 0,
    models       TEXT    NOT NULL DEFAULT '[]',
    routes       TEXT    NOT NULL DEFAULT '[]',
    limits       TEXT,
    log_prompts  INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO keys_with_viewers (id, name, role, prefix, hash, created_at, last_used_at, expires_at, revoked, models, routes, limits, log_prompts)
SELECT id, name, role, prefix, hash, created_at, last_used_at, expires_at, revoked, models, routes, limits, log_prompts FROM keys;

DROP TABLE keys;
ALTER TABLE keys_with_viewers RENAME TO keys;
