-- What an application's watched queue held: the most of each quarter of an hour, or of what was left of it.

CREATE TABLE backlogs (
    backlog_id INTEGER PRIMARY KEY,
    region TEXT NOT NULL,
    queue TEXT NOT NULL,
    began_at TEXT NOT NULL,
    visible_message_count REAL NOT NULL,
    not_visible_message_count REAL NOT NULL,
    oldest_undeleted_seconds REAL,
    visibility_timeout_seconds REAL NOT NULL
);
CREATE INDEX backlogs_by_age ON backlogs (began_at);
