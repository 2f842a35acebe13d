-- For background responses, the person who created them and how often an engine was cut. For stored responses, their last event.
ALTER TABLE background_responses ADD COLUMN person TEXT; -- a JSON object, if the holder has signed on
ALTER TABLE background_responses ADD COLUMN cuts INTEGER NOT NULL DEFAULT 0; -- runs that a crash or a restart has cut
ALTER TABLE responses ADD COLUMN last_event INTEGER; -- its number, if its events were kept
UPDATE background_responses SET cuts = runs;
