-- When a place became another one, what moved, and what was advised before and after: kept longer than the
-- measurements and fits that showed it. noticed_at tells one change of a place from another.

CREATE TABLE changes (
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
CREATE INDEX changes_by_age ON changes (changed_at);
CREATE INDEX fits_by_date ON fits (operation, region, instance_type, service_class, fitted_at);
