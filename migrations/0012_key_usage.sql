-- What each key used of each model in a day: requests that an engine took, and tokens as it counted them. Days are days
-- since 1970 where the service lives. No request's content. 100 days are kept.
CREATE TABLE key_usage (
    holder            TEXT    NOT NULL, -- the id of the key or the person, as k3
    day               INTEGER NOT NULL,
    model             TEXT    NOT NULL,
    requests          INTEGER NOT NULL,
    prompt_tokens     INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    PRIMARY KEY (holder, day, model)
) STRICT, WITHOUT ROWID;

CREATE INDEX key_usage_by_day ON key_usage (day);
