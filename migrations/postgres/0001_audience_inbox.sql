-- The tables of `audience::inbox::PostgresStore`, version 1. Needs PostgreSQL 13 or later and a database in UTF8.
-- They are created in the first schema of the search_path that exists. Running this again changes nothing.
-- The rights that a receiver needs are at the end.

CREATE TABLE IF NOT EXISTS audience_inbox (
    endpoint    text COLLATE "C" NOT NULL,
    event_id    text COLLATE "C" NOT NULL,
    -- No column has a CHECK or is generated: Postgres would parse that anew for each statement.
    -- open: claimed, or waiting to be claimed. done: handled. parked: given up, until it is replayed or discarded.
    state       text NOT NULL,
    -- The newest claim. NULL: nobody holds one. Kept when the event is done.
    token       bytea,
    -- How many claims were made.
    attempts    integer NOT NULL,
    -- When the lease ends, or when the next attempt is due.
    due         timestamptz NOT NULL,
    -- When the entry counts as absent. NULL: not before it changes.
    forget_at   timestamptz,
    -- When purging begins to look at the entry, which is little before forget_at. Completing a claim leaves it as it is, so
    -- no index changes then (a HOT update).
    purge_from  timestamptz,
    -- The first 16 bytes of the SHA-256 of the body, if the body was seen.
    fingerprint bytea,
    -- The body of an accepted event. Holds personal data. Deleted when the event is done.
    body        bytea,
    -- Why the last attempt failed.
    reason      text,
    parked_at   timestamptz,
    -- When a worker may take the event: `due` of an open one with a body. NULL: never.
    queued_at   timestamptz,
    PRIMARY KEY (endpoint, event_id)
) WITH (
    fillfactor = 85,
    -- A queue leaves dead rows behind. The default waits until they are a fifth of the table.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    toast.autovacuum_vacuum_scale_factor = 0.02
);

CREATE INDEX IF NOT EXISTS audience_inbox_queue ON audience_inbox (endpoint, queued_at) WHERE queued_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS audience_inbox_purge ON audience_inbox (purge_from) WHERE purge_from IS NOT NULL;
CREATE INDEX IF NOT EXISTS audience_inbox_parked ON audience_inbox (endpoint, event_id) WHERE parked_at IS NOT NULL;

CREATE TABLE IF NOT EXISTS audience_inbox_schema (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version  integer NOT NULL
);

INSERT INTO audience_inbox_schema (version) VALUES (1) ON CONFLICT DO NOTHING;

-- A role of its own for the receivers needs these rights only. Put in the names of your role and your schema.
--   GRANT USAGE ON SCHEMA public TO receiver;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON audience_inbox TO receiver;
--   GRANT SELECT ON audience_inbox_schema TO receiver;
