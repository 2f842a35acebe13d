-- Background responses that have not ended, and conversations that clients create. Times are Unix milliseconds.
CREATE TABLE background_responses (
    id         TEXT    PRIMARY KEY NOT NULL,
    holder     TEXT    NOT NULL, -- key:3, address:10.0.0.7
    created_at INTEGER NOT NULL,
    runs       INTEGER NOT NULL, -- runs in which an engine began to respond
    streamed   INTEGER NOT NULL, -- 1: events are kept while it runs
    bytes      INTEGER NOT NULL,
    request    TEXT    NOT NULL, -- the JSON body
    response   TEXT    NOT NULL  -- the JSON object, queued
) STRICT;

CREATE INDEX background_responses_by_holder ON background_responses (holder, bytes);
CREATE INDEX background_responses_by_time ON background_responses (created_at, id);

CREATE TABLE named_conversations (
    id         TEXT    PRIMARY KEY NOT NULL,
    holder     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL, -- when an item was last added
    bytes      INTEGER NOT NULL, -- with its items
    metadata   TEXT    NOT NULL  -- a JSON object
) STRICT;

CREATE INDEX named_conversations_by_holder ON named_conversations (holder, used_at);
CREATE INDEX named_conversations_by_use ON named_conversations (used_at);

CREATE TABLE conversation_items (
    nth          INTEGER PRIMARY KEY,
    conversation TEXT    NOT NULL REFERENCES named_conversations (id) ON DELETE CASCADE,
    id           TEXT    NOT NULL,
    item         TEXT    NOT NULL, -- the JSON object
    UNIQUE (conversation, id)
) STRICT;

CREATE INDEX conversation_items_by_conversation ON conversation_items (conversation, nth);
