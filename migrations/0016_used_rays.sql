-- The Rays in whose Serve there may be applications of this pool, whatever model files say now.
CREATE TABLE used_rays (
    address    TEXT    NOT NULL, -- of the dashboard
    prefix     TEXT    NOT NULL, -- what the names of the applications begin with
    token_file TEXT,             -- null: the token is in the environment, or there is none
    timeout_ms INTEGER NOT NULL,
    section    TEXT    NOT NULL, -- of the configuration that names the Ray, for errors
    PRIMARY KEY (address, prefix)
) STRICT;
