-- The path of the sender's group, from the top, as it was at that time, and that of the key that was changed.
ALTER TABLE audit ADD COLUMN actor_group TEXT; -- as physics/lab
ALTER TABLE audit ADD COLUMN key_group TEXT;
