-- The account of device time: parts by hour and by day, per device, model, payer and state. Names are stored once. Hours are kept
-- for two weeks, days as configured (usage.keep).
CREATE TABLE ledger_names (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE ledger_hours (
    hour         INTEGER NOT NULL, -- since 1970
    device       INTEGER NOT NULL,
    model        INTEGER NOT NULL,
    payer        INTEGER NOT NULL,
    state        INTEGER NOT NULL,
    device_ms    INTEGER NOT NULL,
    byte_seconds INTEGER NOT NULL,
    energy_mj    INTEGER NOT NULL, -- during energy_ms
    energy_ms    INTEGER NOT NULL, -- the part of device_ms for which the energy is known
    PRIMARY KEY (hour, device, model, payer, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE ledger_days (
    day          INTEGER NOT NULL, -- since 1970, where the service lives
    device       INTEGER NOT NULL,
    model        INTEGER NOT NULL,
    payer        INTEGER NOT NULL,
    state        INTEGER NOT NULL,
    device_ms    INTEGER NOT NULL,
    byte_seconds INTEGER NOT NULL,
    energy_mj    INTEGER NOT NULL,
    energy_ms    INTEGER NOT NULL,
    PRIMARY KEY (day, payer, device, model, state)
) STRICT, WITHOUT ROWID;

-- The time up to which all parts of a device are stored, by the machine's clock.
CREATE TABLE ledger_seen (
    device TEXT    NOT NULL PRIMARY KEY,
    until  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
