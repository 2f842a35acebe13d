-- What a key may be used for beside its role, and how much. Lists and limits are JSON; an empty list allows all.
ALTER TABLE keys ADD COLUMN models      TEXT    NOT NULL DEFAULT '[]';
ALTER TABLE keys ADD COLUMN routes      TEXT    NOT NULL DEFAULT '[]';
ALTER TABLE keys ADD COLUMN limits      TEXT; -- null: the configured default
ALTER TABLE keys ADD COLUMN log_prompts INTEGER NOT NULL DEFAULT 0;

-- Tokens of one day, for daily budgets that must not begin again with a restart. Days are days since 1970 where
-- the service lives; the bucket is whatever the budget belongs to.
CREATE TABLE tokens_by_day (
    day    INTEGER NOT NULL,
    bucket TEXT    NOT NULL,
    tokens INTEGER NOT NULL,
    PRIMARY KEY (day, bucket)
) STRICT;
