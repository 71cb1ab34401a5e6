-- What applications reported, apart from what penstock measured: however much they report, it displaces no measurement.
-- reporter_uid is the user who reported, or -1 where that was not written down.

CREATE TABLE reports (
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
CREATE INDEX reports_by_place
    ON reports (operation, region, instance_type, service_class, reporter_uid, started_at);
CREATE INDEX reports_by_user ON reports (reporter_uid, report_id);
CREATE INDEX reports_by_age ON reports (started_at);
