-- What was measured, learned, advised and spent. A document is the JSON of the word in the vocabulary of the same
-- name; the columns beside it are what is searched by. Dates are UTC with microseconds, so that they sort as text.

CREATE TABLE observations (
    observation_id INTEGER PRIMARY KEY,
    operation TEXT NOT NULL,
    region TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    service_class TEXT NOT NULL,
    payload_size_bytes INTEGER NOT NULL,
    started_at TEXT NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX observations_by_place
    ON observations (operation, region, instance_type, service_class, started_at);
CREATE INDEX observations_by_context
    ON observations (operation, region, instance_type, service_class, payload_size_bytes, started_at);
CREATE INDEX observations_by_age ON observations (started_at);

CREATE TABLE inconclusives (
    inconclusive_id INTEGER PRIMARY KEY,
    operation TEXT NOT NULL,
    region TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    service_class TEXT NOT NULL,
    payload_size_bytes INTEGER NOT NULL,
    started_at TEXT NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX inconclusives_by_age ON inconclusives (started_at);

CREATE TABLE fits (
    fit_id INTEGER PRIMARY KEY,
    operation TEXT NOT NULL,
    region TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    service_class TEXT NOT NULL,
    fitted_at TEXT NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX fits_by_place ON fits (operation, region, instance_type, service_class);
CREATE INDEX fits_by_age ON fits (fitted_at);

CREATE TABLE recommendations (
    recommendation_id INTEGER PRIMARY KEY,
    operation TEXT NOT NULL,
    region TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    service_class TEXT NOT NULL,
    payload_size_bytes INTEGER NOT NULL,
    demand TEXT NOT NULL,
    issued_at TEXT NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX recommendations_by_question
    ON recommendations (operation, region, instance_type, service_class, payload_size_bytes, demand);
CREATE INDEX recommendations_by_age ON recommendations (issued_at);

-- What may still be outside this process: written before it is created, deleted after it is gone.
CREATE TABLE leftovers (
    document TEXT PRIMARY KEY,
    recorded_at TEXT NOT NULL
);

-- What probes cost, by the hour in which they were allowed.
CREATE TABLE spend (
    hour_at TEXT NOT NULL,
    operation TEXT NOT NULL,
    transferred_bytes INTEGER NOT NULL,
    request_count INTEGER NOT NULL,
    usd REAL NOT NULL,
    credit_bytes INTEGER NOT NULL,
    duration_seconds REAL NOT NULL,
    PRIMARY KEY (hour_at, operation)
);

-- How often each context was probed, and when last: what the schedule counts, whatever has been forgotten since.
CREATE TABLE attempts (
    operation TEXT NOT NULL,
    region TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    service_class TEXT NOT NULL,
    payload_size_bytes INTEGER NOT NULL,
    attempt_count INTEGER NOT NULL,
    last_at TEXT NOT NULL,
    PRIMARY KEY (operation, region, instance_type, service_class, payload_size_bytes)
);
