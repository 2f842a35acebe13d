-- The virtual models that administrators set with the API, which replace those of the configuration with the same name: a virtual model
-- as in the configuration, as JSON.
CREATE TABLE virtual_models (
    name       TEXT NOT NULL PRIMARY KEY,
    model_json TEXT NOT NULL
) STRICT, WITHOUT ROWID;
