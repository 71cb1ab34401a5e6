-- What applications were heard to do: a row for each of them and each of its calls in an hour of listening, written anew
-- while that hour lasts. Any user of the host may have sent it, so each user's rows make room for his own alone.
-- And what each probe cost the applications beside it. user_id is -1 where nobody could say.

CREATE TABLE client_hours (
    client_hour_id INTEGER PRIMARY KEY,
    began_at TEXT NOT NULL,
    user_id INTEGER NOT NULL,
    sender TEXT NOT NULL,
    document TEXT NOT NULL,
    UNIQUE (began_at, user_id, sender)
);
CREATE TABLE harms (
    harm_id INTEGER PRIMARY KEY,
    started_at TEXT NOT NULL,
    document TEXT NOT NULL
);
