-- The numbers and sizes of the rows that have a common limit (state.responses.size). A change of such a row changes its total in the same transaction.
CREATE TABLE response_totals (
    name   TEXT    PRIMARY KEY NOT NULL, -- the table
    number INTEGER NOT NULL,
    bytes  INTEGER NOT NULL
) STRICT;

INSERT INTO response_totals (name, number, bytes)
SELECT 'responses', count(*), CAST(coalesce(sum(bytes), 0) AS INTEGER) FROM responses
UNION ALL SELECT 'named_conversations', count(*), CAST(coalesce(sum(bytes), 0) AS INTEGER) FROM named_conversations
UNION ALL SELECT 'background_responses', count(*), CAST(coalesce(sum(bytes), 0) AS INTEGER) FROM background_responses;
