-- In which seconds of the minute the requests of a row came: bit n for second n, and bit 60 for requests that came before the
-- minute and waited for their seat. Null: not known, as in all older rows.
ALTER TABLE usage ADD COLUMN seconds INTEGER;
