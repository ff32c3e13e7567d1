-- The tables of `audience::inbox::SqliteStore`, version 2. Needs SQLite 3.37 or later and a database in UTF-8.
-- Running this again changes nothing.

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

-- SqliteStore::CLAIM_IN inserts a row here for each event that it looks up. No row is kept.
CREATE VIEW IF NOT EXISTS audience_inbox_claim (endpoint, id, hash, fingerprint, now, forget_at, outcome) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE FALSE;

-- Makes an event done that was claimed in a transaction of the user's.
CREATE TRIGGER IF NOT EXISTS audience_inbox_claimed INSTEAD OF INSERT ON audience_inbox_claim
WHEN NEW.outcome = 'claimed'
BEGIN
    -- An event with such values would be forgotten immediately, or never found.
    SELECT raise(ABORT, 'audience_inbox: the hash has 16 bytes, and the retention and the time are numbers')
    WHERE length(NEW.hash) IS NOT 16 OR typeof(NEW.now) <> 'integer' OR NEW.forget_at <= NEW.now;

    -- Overwritten first: not every connection does that with what it deletes.
    UPDATE audience_inbox_body SET body = zeroblob(length(body))
    WHERE number = (SELECT body FROM audience_inbox_pending WHERE endpoint = NEW.endpoint AND id = NEW.id);
    DELETE FROM audience_inbox_body
    WHERE number = (SELECT body FROM audience_inbox_pending WHERE endpoint = NEW.endpoint AND id = NEW.id);
    DELETE FROM audience_inbox_pending WHERE endpoint = NEW.endpoint AND id = NEW.id;

    -- A period that has events is closed after a twelfth of the time that this event is remembered, or six hours.
    UPDATE audience_inbox_period SET closed = random()
    WHERE number = (SELECT max(number) FROM audience_inbox_period)
        AND closed IS NULL AND first_forget IS NOT NULL AND began <= NEW.now - max(21600000, (NEW.forget_at - NEW.now) / 12);
    INSERT INTO audience_inbox_period (number, began)
    SELECT coalesce((SELECT max(number) FROM audience_inbox_period), 0) + 1, NEW.now
    WHERE (SELECT closed IS NULL FROM audience_inbox_period ORDER BY number DESC LIMIT 1) IS NOT TRUE;
    UPDATE audience_inbox_period SET first_forget = NEW.forget_at
    WHERE number = (SELECT max(number) FROM audience_inbox_period)
        AND (first_forget > NEW.forget_at) IS NOT FALSE;
    -- A forgotten event may have the same hash.
    INSERT OR REPLACE INTO audience_inbox_done (period, hash, fingerprint, forget_at)
    SELECT max(number), NEW.hash, substr(NEW.fingerprint, 1, 8), NEW.forget_at FROM audience_inbox_period;
END;
