-- Responses that clients asked to be stored. A conversation is a response without a previous one and all that
-- follow it: it is deleted as a whole, so that what is left can always be continued. Times are Unix milliseconds.
CREATE TABLE conversations (
    id      INTEGER PRIMARY KEY,
    holder  TEXT    NOT NULL, -- whose it is: key:3, person:9f3c, address:10.0.0.7
    used_at INTEGER NOT NULL  -- when its last response was stored
) STRICT;

CREATE INDEX conversations_by_holder ON conversations (holder, used_at);
CREATE INDEX conversations_by_use ON conversations (used_at);

CREATE TABLE responses (
    nth          INTEGER PRIMARY KEY,
    id           TEXT    NOT NULL UNIQUE,
    conversation INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    previous     TEXT,             -- the response that it continues, which may have been deleted since
    bytes        INTEGER NOT NULL, -- with its items
    response     TEXT    NOT NULL  -- the JSON object, with an empty output
) STRICT;

CREATE INDEX responses_by_conversation ON responses (conversation, bytes);
CREATE INDEX responses_by_previous ON responses (previous);

-- What went in and what came out, in their order.
CREATE TABLE response_items (
    response  INTEGER NOT NULL REFERENCES responses (nth) ON DELETE CASCADE,
    place     INTEGER NOT NULL,
    is_output INTEGER NOT NULL,
    id        TEXT    NOT NULL,
    item      TEXT    NOT NULL, -- the JSON object
    UNIQUE (response, place)
) STRICT;

CREATE INDEX response_items_by_id ON response_items (id);
