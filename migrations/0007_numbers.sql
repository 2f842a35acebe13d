-- The largest numbers that replicas and orders were ever given. They are not given again, also when the history
-- that told of them is gone; a start reads them here and looks through no history.
CREATE TABLE numbers (
    name TEXT    PRIMARY KEY NOT NULL, -- replica, order
    last INTEGER NOT NULL
) STRICT;

-- The one time that all of the history is looked through.
WITH seen AS MATERIALIZED (
    SELECT coalesce(max(replica), 0) AS replica, coalesce(max(order_id), 0) AS order_id FROM history
)
INSERT INTO numbers (name, last)
SELECT 'replica', replica FROM seen UNION ALL SELECT 'order', order_id FROM seen;
