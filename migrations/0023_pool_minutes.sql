-- What the pool did in each minute, for charts: tokens as engines counted them, device time, and requests by the time to their first
-- token. Minutes since 1970. 100 days are kept.
CREATE TABLE pool_minutes (
    minute            INTEGER PRIMARY KEY NOT NULL,
    prompt_tokens     INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    used_ms           INTEGER NOT NULL, -- device time used by requests
    device_ms         INTEGER NOT NULL, -- of all devices
    first_tokens      TEXT    NOT NULL  -- nth bucket and requests, as 3:12 5:1
) STRICT;
