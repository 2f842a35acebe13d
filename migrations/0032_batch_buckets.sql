-- The buckets with the bytes of files, and the objects that no record names, which are deleted until the bucket confirms it.
ALTER TABLE files ADD COLUMN bucket TEXT; -- s3://name/folder; null: only on disk

CREATE INDEX files_by_object ON files (bucket, stored_as);

CREATE TABLE unused_objects (
    bucket TEXT    NOT NULL, -- s3://name/folder
    name   TEXT    NOT NULL, -- as files.stored_as
    due_at INTEGER NOT NULL, -- Unix milliseconds; an object has its row before it is put
    PRIMARY KEY (bucket, name)
) STRICT;
