-- Claims events of one endpoint that have no entry, for all callers that wait. Claims like claim.sql.
-- $1 endpoint, $2 ids, none twice, $3 their tokens, 16 bytes each, one after the other, $4 lease and $5 retention in
-- seconds, $6 fingerprints like the tokens, or NULL, $7 synchronous_commit ('' for that of the session),
-- $8 how long to wait for another transaction, such as '20ms', $9 'claims'.
-- Returns those that were claimed.
WITH settings AS MATERIALIZED (
    SELECT set_config('lock_timeout', $8::text, true)
    WHERE $9::text = 'claims' AND ($7::text = '' OR set_config('synchronous_commit', $7::text, true) <> '')
)
INSERT INTO audience_inbox (endpoint, event_id, state, token, attempts, due, forget_at, purge_from, fingerprint)
SELECT
    $1::text, id, 'open', substring($3::bytea FROM 16 * n::integer - 15 FOR 16), 1,
    clock_timestamp() + make_interval(secs => $4::float8),
    clock_timestamp() + make_interval(secs => $4::float8 + $5::float8),
    clock_timestamp() + make_interval(secs => $5::float8),
    substring($6::bytea FROM 16 * n::integer - 15 FOR 16)
FROM settings, unnest($2::text[]) WITH ORDINALITY AS claim (id, n)
ON CONFLICT (endpoint, event_id) DO NOTHING
RETURNING event_id
