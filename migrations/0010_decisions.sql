-- What a decision compared, beside the row of the history that it caused. Rows that are older have none.
CREATE TABLE decisions (
    event    INTEGER PRIMARY KEY REFERENCES history (id) ON DELETE CASCADE,
    decision TEXT    NOT NULL -- JSON
) STRICT;

ALTER TABLE history ADD COLUMN cause    TEXT; -- the name of the reason, as preempted
ALTER TABLE history ADD COLUMN asked_by TEXT; -- the id of the key or the person, as k3; k0: somebody without one

-- The words of reasons are not stored data; this is the one time that they are read as such.
UPDATE history SET cause = CASE
    WHEN reason LIKE 'preempted by %' THEN 'preempted'
    WHEN reason LIKE 'its turn of %' THEN 'turn_ended'
    WHEN reason LIKE 'yields after %' THEN 'yielded'
    WHEN reason LIKE 'forced out by %' THEN 'forced'
    WHEN reason LIKE 'idle for %' THEN 'keep_hot'
    WHEN reason LIKE 'unloaded by %' THEN 'unload'
    WHEN reason LIKE 'cleanup, %' THEN 'cleanup'
    WHEN kind = 'load' AND reason LIKE '% waiting' THEN 'requests'
    WHEN kind = 'load' AND reason LIKE 'order %' THEN 'order'
    WHEN kind = 'load' AND reason LIKE 'always-hot%' THEN 'always_hot'
END
WHERE kind IN ('evict', 'drain', 'unload', 'gone', 'load');

-- The first page of every filter reads its own rows alone.
CREATE INDEX history_by_model_and_kind ON history (model, kind, id);
CREATE INDEX history_by_model_and_cause ON history (model, cause, id) WHERE cause IS NOT NULL;
CREATE INDEX history_by_cause ON history (cause, id) WHERE cause IS NOT NULL;
CREATE INDEX history_by_asker ON history (asked_by, id) WHERE asked_by IS NOT NULL;

-- Reports read this index and no row.
DROP INDEX history_by_time;
CREATE INDEX history_by_time ON history (at, kind, model, cause, took_ms);

-- Which ids an hour has, so that a time becomes a range of ids, also when the clock was set back.
CREATE TABLE history_hours (
    hour     INTEGER PRIMARY KEY NOT NULL, -- hours since 1970
    first_id INTEGER NOT NULL,
    last_id  INTEGER NOT NULL
) STRICT;

INSERT INTO history_hours (hour, first_id, last_id)
SELECT at / 3600000, min(id), max(id) FROM history GROUP BY 1;

-- How many of a minute's requests waited for their seat, and for how long together.
ALTER TABLE usage ADD COLUMN waited    INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN waited_ms INTEGER NOT NULL DEFAULT 0;
