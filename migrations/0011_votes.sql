-- Which of several answers people found best. Times are Unix milliseconds.
-- AUTOINCREMENT: an id is never given twice; the order of ids is the order in which votes were counted.
CREATE TABLE votes (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    holder     TEXT    NOT NULL, -- who voted: key:3, person:9f3c
    comparison TEXT    NOT NULL, -- the voter's own name of the comparison
    models     TEXT    NOT NULL, -- a JSON list
    winner     TEXT,             -- null: a tie
    UNIQUE (holder, comparison)
) STRICT;

CREATE INDEX votes_by_holder ON votes (holder, at);
CREATE INDEX votes_by_time ON votes (at);

-- What all votes so far add up to, those included whose rows are deleted by now.
CREATE TABLE ratings (
    model       TEXT    PRIMARY KEY NOT NULL,
    rating      INTEGER NOT NULL, -- thousandths of a point
    comparisons INTEGER NOT NULL,
    wins        INTEGER NOT NULL,
    ties        INTEGER NOT NULL,
    voted_at    INTEGER NOT NULL
) STRICT;

CREATE INDEX ratings_by_time ON ratings (voted_at);
