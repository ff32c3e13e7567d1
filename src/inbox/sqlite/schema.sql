CREATE TABLE IF NOT EXISTS audience_inbox_version (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    version INTEGER NOT NULL
) STRICT;
INSERT OR IGNORE INTO audience_inbox_version (only_row, version) VALUES (1, 2);

-- Events that are not done. Times are milliseconds since 1970.
CREATE TABLE IF NOT EXISTS audience_inbox_pending (
    endpoint TEXT NOT NULL,
    id TEXT NOT NULL,
    state INTEGER NOT NULL,   -- 0 waits, 1 claimed, 3 parked
    token BLOB,               -- of the newest claim
    attempts INTEGER NOT NULL,
    due INTEGER NOT NULL,     -- the end of the wait or of the lease; when it was parked
    forget_at INTEGER,        -- NULL: not before the entry changes
    fingerprint BLOB,         -- the first 16 bytes of the body's SHA-256
    body INTEGER,             -- audience_inbox_body.number
    reason TEXT,              -- why it is parked
    PRIMARY KEY (endpoint, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS audience_inbox_due
    ON audience_inbox_pending (endpoint, due, body, state) WHERE body IS NOT NULL AND state < 2;
CREATE INDEX IF NOT EXISTS audience_inbox_parked
    ON audience_inbox_pending (endpoint, id) WHERE state = 3;
CREATE INDEX IF NOT EXISTS audience_inbox_forget
    ON audience_inbox_pending (forget_at) WHERE forget_at IS NOT NULL;

-- Apart, so that a claim need not rewrite a body.
CREATE TABLE IF NOT EXISTS audience_inbox_body (
    number INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

-- Events that are done, ordered by the period in which they were. Ids are random, so this keeps the pages few
-- that are written.
CREATE TABLE IF NOT EXISTS audience_inbox_done (
    period INTEGER NOT NULL,  -- audience_inbox_period.number
    hash BLOB NOT NULL,       -- the first 16 bytes of the SHA-256 of endpoint and id
    token BLOB,               -- the first 8 bytes of the token of the claim that was completed
    fingerprint BLOB,         -- the first 8 bytes of the body's SHA-256
    forget_at INTEGER NOT NULL,
    PRIMARY KEY (period, hash)
) STRICT, WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS audience_inbox_period (
    number INTEGER PRIMARY KEY,
    began INTEGER NOT NULL,
    first_forget INTEGER,     -- no event of the period may be forgotten before
    closed INTEGER            -- NULL: events are added. Then a random number, and no event is ever added
) STRICT;
