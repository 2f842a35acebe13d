-- Devices that take nothing new (M7), by UUID or name. Times are Unix milliseconds.
CREATE TABLE cordons (
    device   TEXT    PRIMARY KEY NOT NULL,
    reason   TEXT    NOT NULL,
    since_at INTEGER NOT NULL,
    until_at INTEGER,          -- when it is expected to be over
    failed   INTEGER NOT NULL  -- 1: the device itself gave the reason
) STRICT;
