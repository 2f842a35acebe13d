-- Machines that join the pool, their devices, and the tokens they join with. Times are Unix milliseconds.

-- The number of a node stays while its name does.
CREATE TABLE nodes (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT    NOT NULL UNIQUE,
    credential BLOB,            -- SHA-256 of what the node comes back with; null: it needs a token
    joined_at  INTEGER NOT NULL
) STRICT;

-- The number of a device stays while its node has one of this name.
CREATE TABLE node_devices (
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    node INTEGER NOT NULL REFERENCES nodes (id),
    name TEXT    NOT NULL,
    UNIQUE (node, name)
) STRICT;

CREATE TABLE node_tokens (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    prefix     TEXT    NOT NULL,
    hash       BLOB    NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at    INTEGER,
    revoked    INTEGER NOT NULL DEFAULT 0
) STRICT;
