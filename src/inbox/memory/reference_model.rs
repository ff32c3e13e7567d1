//! What a store must do, written down row by row as the documentation of `Store` has it: a list that is
//! searched from its start, and times in whole seconds.

/// One event.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) endpoint: u8,
    pub(super) id: u8,
    pub(super) phase: Phase,
    /// Who may complete it: the holder of the claim, or who completed it.
    pub(super) owner: Option<u8>,
    pub(super) attempts: u32,
    /// The end of the lease or of the delay.
    pub(super) due: u64,
    /// The end of the retention.
    pub(super) forget: u64,
    pub(super) fingerprint: Option<u8>,
    pub(super) body: Option<u8>,
    pub(super) reason: u8,
    pub(super) parked_at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
    Claimed,
    Waiting,
    Done,
    Parked,
}

#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Fresh(u32),
    Accepted,
    Repeated,
    InProgress(u64),
    Done,
    Parked,
    Conflict,
}

/// All events, and the time.
#[derive(Default)]
pub(super) struct Model {
    pub(super) rows: Vec<Row>,
    pub(super) now: u64,
}

impl Model {
    pub(super) fn is_forgotten(&self, row: &Row) -> bool {
        let may_be_forgotten = match row.phase {
            Phase::Done => true,
            Phase::Claimed | Phase::Waiting => row.body.is_none(),
            Phase::Parked => false,
        };
        may_be_forgotten && row.forget <= self.now
    }

    /// Deletes what may be forgotten. Returns how many rows.
    pub(super) fn purge(&mut self) -> usize {
        let before = self.rows.len();
        let rows = std::mem::take(&mut self.rows);
        self.rows = rows
            .into_iter()
            .filter(|row| !self.is_forgotten(row))
            .collect();
        before - self.rows.len()
    }

    pub(super) fn row(&mut self, endpoint: u8, id: u8) -> Option<&mut Row> {
        self.rows
            .iter_mut()
            .find(|row| row.endpoint == endpoint && row.id == id)
    }

    /// Returns the row of an event, which is created if it is absent or forgotten.
    fn row_or_new(&mut self, endpoint: u8, id: u8) -> &mut Row {
        let rows = std::mem::take(&mut self.rows);
        let is_asked = |row: &Row| row.endpoint == endpoint && row.id == id;
        self.rows = rows
            .into_iter()
            .filter(|row| !(is_asked(row) && self.is_forgotten(row)))
            .collect();
        if self.row(endpoint, id).is_none() {
            self.rows.push(Row {
                endpoint,
                id,
                phase: Phase::Waiting,
                owner: None,
                attempts: 0,
                due: self.now,
                forget: self.now,
                fingerprint: None,
                body: None,
                reason: 0,
                parked_at: 0,
            });
        }
        self.row(endpoint, id).unwrap()
    }

    pub(super) fn claim(
        &mut self,
        (endpoint, id): (u8, u8),
        token: u8,
        (lease, retention): (u64, u64),
        fingerprint: Option<u8>,
    ) -> Answer {
        let now = self.now;
        let row = self.row_or_new(endpoint, id);
        if let (Some(known), Some(given)) = (row.fingerprint, fingerprint)
            && known != given
        {
            return Answer::Conflict;
        }
        match row.phase {
            Phase::Done => return Answer::Done,
            Phase::Parked => return Answer::Parked,
            Phase::Claimed if row.due > now && row.owner == Some(token) => {
                return Answer::Fresh(row.attempts);
            }
            Phase::Claimed | Phase::Waiting if row.due > now => {
                return Answer::InProgress(row.due - now);
            }
            Phase::Claimed | Phase::Waiting => {}
        }
        row.phase = Phase::Claimed;
        row.owner = Some(token);
        row.attempts += 1;
        row.due = now + lease;
        row.forget = now + lease + retention;
        row.fingerprint = row.fingerprint.or(fingerprint);
        Answer::Fresh(row.attempts)
    }

    pub(super) fn accept(&mut self, (endpoint, id): (u8, u8), body: u8) -> Answer {
        let now = self.now;
        let row = self.row_or_new(endpoint, id);
        if row.fingerprint.is_some_and(|known| known != body) {
            return Answer::Conflict;
        }
        if row.body.is_some() || matches!(row.phase, Phase::Done | Phase::Parked) {
            return Answer::Repeated;
        }
        if row.due > now {
            return Answer::InProgress(row.due - now);
        }
        row.phase = Phase::Waiting;
        row.owner = None;
        row.due = now;
        row.fingerprint = Some(body);
        row.body = Some(body);
        Answer::Accepted
    }

    /// Returns the row of a claim that is held.
    fn held(&mut self, (endpoint, id): (u8, u8), token: u8) -> Option<&mut Row> {
        self.row(endpoint, id)
            .filter(|row| row.phase == Phase::Claimed && row.owner == Some(token))
    }

    pub(super) fn extend(&mut self, key: (u8, u8), token: u8, lease: u64) -> bool {
        let now = self.now;
        self.held(key, token).is_some_and(|row| {
            // An event with a body has no retention.
            let retention = row.forget.saturating_sub(row.due);
            row.due = now + lease;
            row.forget = row.due + retention;
            true
        })
    }

    pub(super) fn complete(&mut self, key: (u8, u8), token: u8, retention: u64) -> bool {
        let now = self.now;
        let is_done = |row: &mut Row| row.phase == Phase::Done && row.owner == Some(token);
        if self.row(key.0, key.1).is_some_and(is_done) {
            return true;
        }
        self.held(key, token).is_some_and(|row| {
            row.phase = Phase::Done;
            row.body = None;
            row.forget = now + retention;
            true
        })
    }

    pub(super) fn release(&mut self, key: (u8, u8), token: u8, delay: u64, retention: u64) -> bool {
        let now = self.now;
        self.held(key, token).is_some_and(|row| {
            row.phase = Phase::Waiting;
            row.owner = None;
            row.due = now + delay;
            row.forget = row.due + retention;
            true
        })
    }

    pub(super) fn park(&mut self, key: (u8, u8), token: u8, reason: u8) -> bool {
        let now = self.now;
        self.held(key, token).is_some_and(|row| {
            row.phase = Phase::Parked;
            row.owner = None;
            row.reason = reason;
            row.parked_at = now;
            true
        })
    }

    fn parked_row(&mut self, (endpoint, id): (u8, u8)) -> Option<&mut Row> {
        self.row(endpoint, id)
            .filter(|row| row.phase == Phase::Parked)
    }

    pub(super) fn replay(&mut self, key: (u8, u8)) -> bool {
        let now = self.now;
        self.parked_row(key).is_some_and(|row| {
            row.phase = Phase::Waiting;
            row.attempts = 0;
            row.due = now;
            row.forget = now;
            true
        })
    }

    pub(super) fn discard(&mut self, key: (u8, u8), retention: u64) -> bool {
        let now = self.now;
        self.parked_row(key).is_some_and(|row| {
            row.phase = Phase::Done;
            row.body = None;
            row.forget = now + retention;
            true
        })
    }

    /// Returns the id, the body, the attempt, and the seconds overdue of each taken event.
    pub(super) fn take(
        &mut self,
        endpoint: u8,
        token: u8,
        lease: u64,
        limit: usize,
    ) -> Vec<(u8, u8, u32, u64)> {
        let now = self.now;
        let is_open = |row: &Row| matches!(row.phase, Phase::Claimed | Phase::Waiting);
        let mut due: Vec<&mut Row> = self
            .rows
            .iter_mut()
            .filter(|row| row.endpoint == endpoint && is_open(row))
            .filter(|row| row.body.is_some() && row.due <= now)
            .collect();
        due.sort_by_key(|row| (row.due, row.id));
        due.into_iter()
            .take(limit)
            .map(|row| {
                let overdue = now - row.due;
                row.phase = Phase::Claimed;
                row.owner = Some(token);
                row.attempts += 1;
                row.due = now + lease;
                (row.id, row.body.unwrap(), row.attempts, overdue)
            })
            .collect()
    }

    /// Returns how many events wait, are in progress and are parked, and the lag.
    pub(super) fn backlog(&self, endpoint: u8) -> (u64, u64, u64, u64) {
        let mut backlog = (0, 0, 0, 0);
        for row in self.rows.iter().filter(|row| row.endpoint == endpoint) {
            match row.phase {
                Phase::Parked => backlog.2 += 1,
                Phase::Claimed if row.body.is_some() && row.due > self.now => backlog.1 += 1,
                Phase::Claimed | Phase::Waiting if row.body.is_some() => {
                    backlog.0 += 1;
                    backlog.3 = backlog.3.max(self.now.saturating_sub(row.due));
                }
                Phase::Claimed | Phase::Waiting | Phase::Done => {}
            }
        }
        backlog
    }
}
