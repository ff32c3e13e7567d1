-- $1 endpoint, $2 'backlog'.
-- A due event waits, also if the lease of a claim has ended. So they are all counted in the index: their rows have the
-- bodies, and reading them for millions of events would take longer than a call may. Only the rows of the others are read.
SELECT
    due.events + later.waiting AS waiting,
    later.in_progress,
    (SELECT count(*) FROM audience_inbox WHERE endpoint = $1::text AND parked_at IS NOT NULL) AS parked,
    coalesce(extract(epoch FROM statement_timestamp() - due.since), 0)::float8 AS lag
FROM (
    SELECT count(*) AS events, min(queued_at) AS since
    FROM audience_inbox
    WHERE endpoint = $1::text AND queued_at <= statement_timestamp()
) AS due, (
    SELECT count(*) FILTER (WHERE token IS NULL) AS waiting, count(token) AS in_progress
    FROM audience_inbox
    WHERE endpoint = $1::text AND queued_at > statement_timestamp()
) AS later
WHERE $2::text = 'backlog'
