-- The group of a key, for keys whose group does not list them; and the keys that administer their group. Their role is `user` here,
-- because SQLite cannot change the check of a table.
ALTER TABLE keys ADD COLUMN group_name TEXT;
ALTER TABLE keys ADD COLUMN administers INTEGER NOT NULL DEFAULT 0;
