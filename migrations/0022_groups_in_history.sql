-- The path of the group of the caller that caused an event, from the top, as it was at that time.
ALTER TABLE history ADD COLUMN asker_group TEXT; -- as physics/lab

-- Reports by group read this index and no row.
CREATE INDEX history_by_group_and_time ON history (at, kind, asker_group, cause) WHERE asker_group IS NOT NULL;

-- The events of each group and of the groups below it: a row for each group of the path. The first page of a group reads its own rows
-- alone.
CREATE TABLE history_groups (
    name  TEXT    NOT NULL,
    event INTEGER NOT NULL REFERENCES history (id) ON DELETE CASCADE,
    PRIMARY KEY (name, event)
) STRICT, WITHOUT ROWID;

CREATE INDEX history_groups_by_event ON history_groups (event);

-- What each group used in an hour: requests that got a seat, their waits, and tokens as engines counted them. The path is that of the
-- group at that time. Hours are hours since 1970. 100 days are kept.
CREATE TABLE group_hours (
    hour      INTEGER NOT NULL,
    path      TEXT    NOT NULL, -- as physics/lab
    requests  INTEGER NOT NULL,
    waited    INTEGER NOT NULL, -- requests that waited for their seat
    waited_ms INTEGER NOT NULL,
    tokens    INTEGER NOT NULL, -- of prompts and responses
    PRIMARY KEY (hour, path)
) STRICT, WITHOUT ROWID;
