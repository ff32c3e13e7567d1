-- $1 endpoint, $2 token, $3 lease in seconds, $4 limit, $5 'take'.
WITH ready AS MATERIALIZED (
    SELECT event_id, queued_at
    FROM audience_inbox
    WHERE endpoint = $1::text AND queued_at <= statement_timestamp() AND $5::text = 'take'
    ORDER BY queued_at
    LIMIT $4::bigint
    FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE audience_inbox SET
        token = $2::bytea,
        attempts = least(attempts, 2147483646) + 1,
        due = clock_timestamp() + make_interval(secs => $3::float8),
        -- Both are NULL already, except in a row whose lease an older version extended.
        forget_at = NULL,
        purge_from = NULL
    -- An array and not a join: its plan uses the primary key, however many rows are expected.
    WHERE endpoint = $1::text AND event_id = ANY (ARRAY(SELECT event_id FROM ready))
    RETURNING event_id, body, attempts
)
SELECT event_id, body, attempts, extract(epoch FROM statement_timestamp() - queued_at)::float8 AS overdue
FROM taken JOIN ready USING (event_id)
ORDER BY queued_at
