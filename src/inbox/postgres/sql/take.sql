-- Completes events, and takes others.
-- $1 endpoint.
-- To be completed: $2 ids, none twice, $3 their tokens, 16 bytes each, one after the other, $4 retention in seconds.
-- To be taken: $5 token, $6 lease in seconds, $7 limit, $8 from when on, in seconds since 1970.
-- $9 how long to wait for another transaction if something is completed, such as '20ms', $10 'take'.
-- Returns what was completed, with 0 attempts, and what was taken, the oldest first. Since when it was due is in seconds
-- since 1970, and `searched` is after how many seconds it was found.
-- Completes like complete.sql.
WITH settings AS MATERIALIZED (
    SELECT set_config('lock_timeout', $9::text, true)
    WHERE $10::text = 'take' AND cardinality($2::text[]) > 0
), completions AS MATERIALIZED (
    -- The endpoint is here, and the condition is always true but lets one row be expected, so that the plan looks up each
    -- entry by the primary key, however small the table was when the plan was made.
    SELECT $1::text AS endpoint, id, substring($3::bytea FROM 16 * n::integer - 15 FOR 16) AS token
    FROM settings, unnest($2::text[]) WITH ORDINALITY AS completion (id, n)
    WHERE octet_length(id || '') = octet_length(id)
), completed AS (
    UPDATE audience_inbox AS entry SET
        state = 'done',
        queued_at = NULL,
        forget_at = CASE
            WHEN state = 'done' THEN forget_at
            WHEN $4::float8 = 0 THEN 'epoch'::timestamptz
            ELSE clock_timestamp() + make_interval(secs => $4::float8)
        END,
        purge_from = CASE
            WHEN state = 'done' THEN purge_from
            WHEN purge_from BETWEEN clock_timestamp() + make_interval(secs => $4::float8 - 3600)
                AND clock_timestamp() + make_interval(secs => $4::float8) THEN purge_from
            ELSE clock_timestamp() + make_interval(secs => $4::float8)
        END,
        body = NULL,
        reason = NULL
    FROM completions
    WHERE entry.endpoint = completions.endpoint AND event_id = id AND entry.token = completions.token
    RETURNING event_id
), ready AS MATERIALIZED (
    SELECT event_id, queued_at, clock_timestamp() AS found_at
    FROM audience_inbox
    WHERE endpoint = $1::text AND queued_at BETWEEN to_timestamp($8::float8) AND statement_timestamp()
        AND $10::text = 'take'
    ORDER BY queued_at
    -- If the planner knew the limit, it would make a plan for each execution, which takes longer than the rest.
    LIMIT (SELECT $7::bigint)
    FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE audience_inbox SET
        token = $5::bytea,
        attempts = least(attempts, 2147483646) + 1,
        due = clock_timestamp() + make_interval(secs => $6::float8),
        queued_at = clock_timestamp() + make_interval(secs => $6::float8),
        -- Both are NULL already, except in a row whose lease an older version extended.
        forget_at = NULL,
        purge_from = NULL
    -- An array and not a join: its plan uses the primary key, however many rows are expected.
    WHERE endpoint = $1::text AND event_id = ANY (ARRAY(SELECT event_id FROM ready))
    RETURNING event_id, body, attempts
)
SELECT
    event_id, NULL::bytea AS body, 0 AS attempts, 0::float8 AS overdue, 0::float8 AS due_since, 0::float8 AS searched
FROM completed
UNION ALL (
    SELECT
        event_id, body, attempts,
        extract(epoch FROM statement_timestamp() - queued_at)::float8,
        extract(epoch FROM queued_at)::float8,
        extract(epoch FROM found_at - statement_timestamp())::float8
    FROM taken JOIN ready USING (event_id)
    ORDER BY queued_at
)
