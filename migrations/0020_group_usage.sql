-- What each group used in a day: requests that an engine took, and tokens as it counted them. The path is that of the group at that
-- time, from the top. Days are days since 1970 where the service lives. 100 days are kept.
CREATE TABLE group_usage (
    day               INTEGER NOT NULL,
    path              TEXT    NOT NULL, -- as physics/lab
    requests          INTEGER NOT NULL,
    prompt_tokens     INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    PRIMARY KEY (day, path)
) STRICT, WITHOUT ROWID;
