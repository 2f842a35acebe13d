-- What administrators asked for, and what came of it. Times are Unix milliseconds.
-- AUTOINCREMENT: an id is never given twice, so that pages may be asked for by it.
CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    key     TEXT,             -- the id of the key, as k3
    subject TEXT,             -- of a token of the single sign-on instead
    name    TEXT,             -- both null: nobody known
    client  TEXT    NOT NULL,
    method  TEXT    NOT NULL,
    path    TEXT    NOT NULL,
    what    TEXT    NOT NULL, -- a JSON object of a few fields of the request
    status  INTEGER NOT NULL,
    request TEXT    NOT NULL  -- x-request-id
) STRICT;

CREATE INDEX audit_by_time ON audit (at);
CREATE INDEX audit_by_key ON audit (key, id);
CREATE INDEX audit_by_subject ON audit (subject, id);
