-- Where the one that leads is reached, so that one that stands by passes requests on to it, and how its time has ended.
ALTER TABLE leadership ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE leadership ADD COLUMN fingerprint TEXT NOT NULL DEFAULT ''; -- of its certificate, if no authority has signed it
ALTER TABLE leadership ADD COLUMN released_at INTEGER NOT NULL DEFAULT 0; -- Unix milliseconds; 0: it has not ended in good order
ALTER TABLE leadership ADD COLUMN reserved_until INTEGER NOT NULL DEFAULT 0; -- the same by the server's clock: for a process that takes over on its machine
