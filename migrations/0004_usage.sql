-- What every minute asked for, so that the past can be replayed. Minutes since 1970; lengths in milliseconds.
CREATE TABLE usage (
    minute   INTEGER NOT NULL,
    model    TEXT    NOT NULL,
    requests INTEGER NOT NULL, -- that got a seat
    busy_ms  INTEGER NOT NULL, -- seats taken, summed over the minute
    PRIMARY KEY (minute, model)
) STRICT;
