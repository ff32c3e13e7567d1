-- Completes events of one endpoint, for all callers that wait. Completes like complete.sql.
-- $1 endpoint, $2 ids, none twice, $3 their tokens, 16 bytes each, one after the other, $4 retention in seconds,
-- $5 how long to wait for another transaction, such as '20ms', $6 'completions'.
-- Returns those that were completed.
WITH settings AS MATERIALIZED (
    SELECT set_config('lock_timeout', $5::text, true)
    WHERE $6::text = 'completions'
), completions AS MATERIALIZED (
    -- The endpoint is here, and the condition is always true but lets one row be expected, so that the plan looks up each
    -- entry by the primary key, however small the table was when the plan was made.
    SELECT $1::text AS endpoint, id, substring($3::bytea FROM 16 * n::integer - 15 FOR 16) AS token
    FROM settings, unnest($2::text[]) WITH ORDINALITY AS completion (id, n)
    WHERE octet_length(id || '') = octet_length(id)
)
UPDATE audience_inbox AS entry SET
    state = 'done',
    queued_at = NULL,
    forget_at = clock_timestamp() + make_interval(secs => $4::float8),
    purge_from = least(purge_from, clock_timestamp() + make_interval(secs => $4::float8)),
    body = NULL,
    reason = NULL
FROM completions
WHERE entry.endpoint = completions.endpoint AND event_id = id AND entry.token = completions.token
RETURNING event_id
