-- The part of each day's figures that requests of batches used.
ALTER TABLE key_usage ADD COLUMN batch_requests INTEGER NOT NULL DEFAULT 0;
ALTER TABLE key_usage ADD COLUMN batch_prompt_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE key_usage ADD COLUMN batch_completion_tokens INTEGER NOT NULL DEFAULT 0;
