//! Commits many operations at once: the disk is asked to keep them only once.

use super::entries::Entries;
use super::error::copy;
use super::job::Job;
use super::session::Session;
use crate::webhooks::Clock;

enum Failure {
    /// The transaction did not begin, so none of them would.
    Begin(rusqlite::Error),
    /// Nothing was committed. Some of them might succeed alone.
    Commit(rusqlite::Error),
}

/// Runs these operations and replies to each of them.
pub(super) fn commit(session: &Session<'_>, clock: &dyn Clock, mut jobs: Vec<Box<dyn Job>>) {
    jobs.retain(|job| !job.is_abandoned());
    if jobs.is_empty() {
        return;
    }
    match try_commit(session, clock, &mut jobs) {
        Ok(()) => jobs.into_iter().for_each(|job| job.reply(Ok(()))),
        Err(Failure::Commit(_)) if jobs.len() > 1 => {
            for job in jobs {
                commit(session, clock, vec![job]);
            }
        }
        Err(Failure::Begin(error) | Failure::Commit(error)) => {
            for job in jobs {
                job.reply(Err(copy(&error)));
            }
        }
    }
}

fn try_commit(
    session: &Session<'_>,
    clock: &dyn Clock,
    jobs: &mut [Box<dyn Job>],
) -> Result<(), Failure> {
    session.execute("BEGIN IMMEDIATE").map_err(Failure::Begin)?;
    // Not before: to begin may have taken long.
    let entries = Entries::new(session, clock.now());
    let result = run_all(session, &entries, jobs).and_then(|()| session.execute("COMMIT"));
    result.map_err(|error| {
        if !session.connection().is_autocommit() {
            // If this fails, the next transaction cannot begin and says so.
            session.execute("ROLLBACK").ok();
        }
        Failure::Commit(error)
    })
}

/// Runs each operation so that its failure does not undo the others.
fn run_all(
    session: &Session<'_>,
    entries: &Entries<'_, '_>,
    jobs: &mut [Box<dyn Job>],
) -> rusqlite::Result<()> {
    for job in jobs {
        session.execute("SAVEPOINT operation")?;
        if !job.run(entries) {
            // Fails if the error ended the whole transaction.
            session.execute("ROLLBACK TO operation")?;
        }
        session.execute("RELEASE operation")?;
    }
    Ok(())
}
