-- Makes an event done as a part of the transaction that this runs in. The trigger of the view does the writing.
-- ?1 endpoint (text), ?2 event id (text), ?3 fingerprint (blob of 16 bytes) or NULL, ?4 retention in seconds,
-- ?5 the first 16 bytes of the SHA-256 of endpoint, a zero byte, and id (blob), ?6 milliseconds since 1970 or NULL for now.
-- Returns one row with one column:
--   claimed      It is yours: apply its effects in this transaction.
--   done, parked It was handled or given up before. Respond with a success.
--   in_progress  A lease lasts, or the event waits for its next attempt. Roll back and respond with 503.
--   conflict     It was handled or stored, or is being handled, with another body.
INSERT INTO audience_inbox_claim (endpoint, id, hash, fingerprint, now, forget_at, outcome)
SELECT
    ?1, ?2, ?5,
    coalesce(?3, (
        SELECT fingerprint FROM audience_inbox_pending
        WHERE endpoint = ?1 AND id = ?2 AND (forget_at > now) IS NOT FALSE
    )),
    now,
    now + CAST(?4 * 1000 AS INTEGER),
    coalesce(
        (
            SELECT CASE
                WHEN forget_at <= now THEN 'claimed'
                WHEN fingerprint <> ?3 AND (state = 3 OR body IS NOT NULL OR due > now) THEN 'conflict'
                WHEN state = 3 THEN 'parked'
                WHEN due > now THEN 'in_progress'
                ELSE 'claimed'
            END
            FROM audience_inbox_pending WHERE endpoint = ?1 AND id = ?2
        ),
        (
            SELECT iif(done.fingerprint <> substr(?3, 1, 8), 'conflict', 'done')
            FROM audience_inbox_period CROSS JOIN audience_inbox_done AS done ON period = number AND hash = ?5
            WHERE done.forget_at > now
            ORDER BY number DESC LIMIT 1
        ),
        'claimed'
    )
FROM (SELECT coalesce(?6, CAST((julianday('now') - 2440587.5) * 86400000 + 0.5 AS INTEGER)) AS now)
RETURNING outcome
