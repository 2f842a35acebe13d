-- Requests of a row with a target for the time to their first token (pool.targets): within it, and later or refused.
ALTER TABLE usage ADD COLUMN in_time INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN late INTEGER NOT NULL DEFAULT 0;
