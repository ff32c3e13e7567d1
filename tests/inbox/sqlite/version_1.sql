CREATE TABLE IF NOT EXISTS audience_inbox_version (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    version INTEGER NOT NULL
) STRICT;
INSERT OR IGNORE INTO audience_inbox_version (only_row, version) VALUES (1, 1);

-- Times are milliseconds since 1970.
CREATE TABLE IF NOT EXISTS audience_inbox (
    endpoint TEXT NOT NULL,
    id TEXT NOT NULL,
    state INTEGER NOT NULL,   -- 0 waits, 1 claimed, 2 done, 3 parked
    token BLOB,               -- of the newest claim
    attempts INTEGER NOT NULL,
    due INTEGER NOT NULL,     -- the end of the wait or of the lease; when it was done or parked
    forget_at INTEGER,        -- NULL: not before the entry changes
    fingerprint BLOB,         -- the first 16 bytes of the body's SHA-256
    body INTEGER,             -- audience_inbox_body.number
    reason TEXT,              -- why it is parked
    PRIMARY KEY (endpoint, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS audience_inbox_due
    ON audience_inbox (endpoint, due, body, state) WHERE body IS NOT NULL AND state < 2;
CREATE INDEX IF NOT EXISTS audience_inbox_parked
    ON audience_inbox (endpoint, id) WHERE state = 3;
CREATE INDEX IF NOT EXISTS audience_inbox_forget
    ON audience_inbox (forget_at) WHERE forget_at IS NOT NULL;

-- Apart, so that a claim need not rewrite a body.
CREATE TABLE IF NOT EXISTS audience_inbox_body (
    number INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

INSERT INTO audience_inbox_body VALUES (7, CAST('body' AS BLOB));
INSERT INTO audience_inbox (endpoint, id, state, token, attempts, due, forget_at, fingerprint, body, reason) VALUES
    ('main', 'claimed', 1, CAST('0123456789abcdef' AS BLOB), 1, 4102444800000, 4102444900000, NULL, NULL, NULL),
    ('main', 'done', 2, CAST('0123456789abcdef' AS BLOB), 1, 0, 4102444800000, CAST('0123456789abcdef' AS BLOB), NULL, NULL),
    ('main', 'parked', 3, NULL, 10, 0, NULL, NULL, NULL, 'no such customer'),
    ('main', 'waiting', 0, NULL, 0, 0, NULL, NULL, 7, NULL);
