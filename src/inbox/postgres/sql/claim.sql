-- Claims an event that has no entry.
-- $1 endpoint, $2 event id, $3 token, $4 lease and $5 retention in seconds, $6 fingerprint or NULL, $7 'claim'.
-- An entry that is forgotten immediately stays so, also if the clock jumps back.
-- Purging looks at an entry from purge_from on. Without the lease in it, a completion leaves it as it is. But after a
-- claim of more than an hour, each purge would look at the entry in vain.
-- No row: it has an entry, which claim_known.sql looks at. To set all columns of that one here would take each claim
-- a third more of the server's time.
INSERT INTO audience_inbox (endpoint, event_id, state, token, attempts, due, forget_at, purge_from, fingerprint)
SELECT
    $1::text, $2::text, 'open', $3::bytea, 1,
    clock_timestamp() + make_interval(secs => $4::float8),
    CASE
        WHEN $4::float8 + $5::float8 = 0 THEN 'epoch'::timestamptz
        ELSE clock_timestamp() + make_interval(secs => $4::float8 + $5::float8)
    END,
    clock_timestamp() + make_interval(
        secs => CASE WHEN $4::float8 > 3600 THEN $4::float8 + $5::float8 ELSE $5::float8 END
    ),
    $6::bytea
WHERE $7::text = 'claim'
ON CONFLICT (endpoint, event_id) DO NOTHING
RETURNING true
