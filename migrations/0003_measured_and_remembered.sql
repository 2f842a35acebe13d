-- What replicas really took (M1): per model, way of starting its engine, kind and number of devices.
-- The older figures do not say on what kind of device they were taken and are measured again.
DROP TABLE measurements;

CREATE TABLE measurements (
    model                 TEXT    NOT NULL,
    arguments             TEXT    NOT NULL,
    kind                  TEXT    NOT NULL,
    devices               INTEGER NOT NULL,
    peak_bytes_per_device INTEGER NOT NULL,
    reload_ms             INTEGER NOT NULL,
    at                    INTEGER NOT NULL,
    PRIMARY KEY (model, arguments, kind, devices)
) STRICT;

-- How much models were wanted and how long their loads took, as numbers of the pool's own.
CREATE TABLE remembered (
    model   TEXT PRIMARY KEY NOT NULL,
    numbers TEXT NOT NULL
) STRICT;
