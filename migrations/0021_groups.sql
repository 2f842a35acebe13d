-- The groups that administrators set with the API, in addition to those of the configuration: a group as in the configuration, as
-- JSON.
CREATE TABLE groups (
    name       TEXT NOT NULL PRIMARY KEY,
    group_json TEXT NOT NULL
) STRICT, WITHOUT ROWID;
