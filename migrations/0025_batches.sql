-- Files that clients upload for batches, and the results of batches. Their bytes are below `state.dir`. Times are Unix milliseconds.
CREATE TABLE files (
    id         TEXT    PRIMARY KEY NOT NULL,
    holder     TEXT    NOT NULL, -- key:3, address:10.0.0.7
    purpose    TEXT    NOT NULL, -- batch, batch_output
    name       TEXT    NOT NULL, -- as uploaded
    stored_as  TEXT    NOT NULL, -- the name on disk, without its extension
    bytes      INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    summary    TEXT              -- JSON: the requests of an uploaded file by model and endpoint
) STRICT;

CREATE INDEX files_by_holder ON files (holder, created_at, id);
CREATE INDEX files_by_expiry ON files (expires_at);

CREATE TABLE batches (
    id         TEXT    PRIMARY KEY NOT NULL,
    holder     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at   INTEGER,          -- null until its last result is on disk
    state      TEXT    NOT NULL  -- JSON: status, times, counts and files
) STRICT;

CREATE INDEX batches_by_holder ON batches (holder, created_at, id);
CREATE INDEX batches_by_time ON batches (created_at, id);
