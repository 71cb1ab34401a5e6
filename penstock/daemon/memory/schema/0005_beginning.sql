-- What was measured, learned, advised and spent. A document is the JSON of the word in the vocabulary of the same
-- name; the columns beside it are what is searched by. Dates are UTC with microseconds, so that they sort as text.
-- Files from before the first release have some of this already, and get the rest.

CREATE TABLE IF NOT EXISTS observations (
    observation_id INTEGER PRIMARY KEY,
    operation TEXT NOT NULL,
    region TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    service_class TEXT NOT NULL,
    payload_size_bytes INTEGER NOT NULL,
    started_at TEXT NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS observations_by_place
    ON observations (operation, region, instance_type, service_class, started_at);
CREATE INDEX IF NOT EXISTS observations_by_context
    ON observations (operation, region, instance_type, service_class, payload_size_bytes, started_at);
CREATE INDEX IF NOT EXISTS observations_by_age ON observations (started_at);

CREATE TABLE IF NOT EXISTS inconclusives (
    inconclusive_id INTEGER PRIMARY KEY,
    operation TEXT NOT NULL,
    region TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    service_class TEXT NOT NULL,
    payload_size_bytes INTEGER NOT NULL,
    started_at TEXT NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS inconclusives_by_age ON inconclusives (started_at);

CREATE TABLE IF NOT EXISTS fits (
    fit_id INTEGER PRIMARY KEY,
    operation TEXT NOT NULL,
    region TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    service_class TEXT NOT NULL,
    fitted_at TEXT NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS fits_by_place ON fits (operation, region, instance_type, service_class);
CREATE INDEX IF NOT EXISTS fits_by_date ON fits (operation, region, instance_type, service_class, fitted_at);
CREATE INDEX IF NOT EXISTS fits_by_age ON fits (fitted_at);

CREATE TABLE IF NOT EXISTS recommendations (
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
CREATE INDEX IF NOT EXISTS recommendations_by_question
    ON recommendations (operation, region, instance_type, service_class, payload_size_bytes, demand);
CREATE INDEX IF NOT EXISTS recommendations_by_age ON recommendations (issued_at);

-- What may still be outside this process: written before it is created, deleted after it is gone.
CREATE TABLE IF NOT EXISTS leftovers (
    document TEXT PRIMARY KEY,
    recorded_at TEXT NOT NULL
);

-- What probes cost, by the hour in which they were allowed.
CREATE TABLE IF NOT EXISTS spend (
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
CREATE TABLE IF NOT EXISTS attempts (
    operation TEXT NOT NULL,
    region TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    service_class TEXT NOT NULL,
    payload_size_bytes INTEGER NOT NULL,
    attempt_count INTEGER NOT NULL,
    last_at TEXT NOT NULL,
    PRIMARY KEY (operation, region, instance_type, service_class, payload_size_bytes)
);

-- What applications reported, apart from what penstock measured: however much they report, it displaces no measurement.
-- reporter_uid is the user who reported, or -1 where that was not written down.
CREATE TABLE IF NOT EXISTS reports (
    report_id INTEGER PRIMARY KEY,
    operation TEXT NOT NULL,
    region TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    service_class TEXT NOT NULL,
    payload_size_bytes INTEGER NOT NULL,
    reporter_uid INTEGER NOT NULL,
    started_at TEXT NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS reports_by_place
    ON reports (operation, region, instance_type, service_class, reporter_uid, started_at);
CREATE INDEX IF NOT EXISTS reports_by_user ON reports (reporter_uid, report_id);
CREATE INDEX IF NOT EXISTS reports_by_age ON reports (started_at);

-- When a place became another one, what moved, and what was advised before and after: kept longer than the
-- measurements and fits that showed it. noticed_at tells one change of a place from another.
CREATE TABLE IF NOT EXISTS changes (
    change_id INTEGER PRIMARY KEY,
    operation TEXT NOT NULL,
    region TEXT NOT NULL,
    instance_type TEXT NOT NULL,
    service_class TEXT NOT NULL,
    changed_at TEXT NOT NULL,
    noticed_at TEXT NOT NULL,
    document TEXT NOT NULL,
    UNIQUE (operation, region, instance_type, service_class, noticed_at)
);
CREATE INDEX IF NOT EXISTS changes_by_age ON changes (changed_at);

-- What an application's watched queue held: the most of each quarter of an hour, or of what was left of it.
CREATE TABLE IF NOT EXISTS backlogs (
    backlog_id INTEGER PRIMARY KEY,
    region TEXT NOT NULL,
    queue TEXT NOT NULL,
    began_at TEXT NOT NULL,
    visible_message_count REAL NOT NULL,
    not_visible_message_count REAL NOT NULL,
    oldest_undeleted_seconds REAL,
    visibility_timeout_seconds REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS backlogs_by_age ON backlogs (began_at);

-- What applications were heard to do: a row for each of them and each of its calls in an hour of listening, written anew
-- while that hour lasts. Any user of the host may have sent it, so each user's rows make room for his own alone.
-- user_id is -1 where nobody could say.
CREATE TABLE IF NOT EXISTS client_hours (
    client_hour_id INTEGER PRIMARY KEY,
    began_at TEXT NOT NULL,
    user_id INTEGER NOT NULL,
    sender TEXT NOT NULL,
    document TEXT NOT NULL,
    UNIQUE (began_at, user_id, sender)
);

-- What each probe cost the applications beside it.
CREATE TABLE IF NOT EXISTS harms (
    harm_id INTEGER PRIMARY KEY,
    started_at TEXT NOT NULL,
    document TEXT NOT NULL
);
