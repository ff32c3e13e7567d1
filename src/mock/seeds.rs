//! The seeds that a mock starts with, and those that a running server gets.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::delivery::{Endpoints, Target};
use super::service::audience::Audience;
use super::service::dialect::Settings;
use super::service::seed::{Seed, SeedEndpoint, SeedSettings};
use super::service::seed_contact::SeedContact;
use super::shared::{ClockTarget, Shared};

/// Some editors and shells begin a file with it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The seeds of a builder, in the order they were added.
#[derive(Clone, Debug, Default)]
pub(super) struct Seeds(Vec<Source>);

#[derive(Clone, Debug)]
enum Source {
    File(PathBuf),
    Seed(Seed),
    Contact(SeedContact),
}

impl Seeds {
    /// Adds a file. It is read by [`read`](Self::read).
    pub(super) fn add_file(&mut self, path: PathBuf) {
        self.0.push(Source::File(path));
    }

    /// Adds a seed. Returns a message for the test's author if it is not one.
    pub(super) fn add_json(&mut self, seed: &Value) -> Result<(), String> {
        self.0.push(Source::Seed(Seed::from_value(seed)?));
        Ok(())
    }

    pub(super) fn add_contact(&mut self, contact: SeedContact) {
        self.0.push(Source::Contact(contact));
    }

    /// Reads the files.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read or is not a seed. The message names the file.
    pub(super) fn read(self) -> io::Result<LoadedSeeds> {
        let sources = self.0.into_iter();
        let loaded = sources.map(|source| match source {
            Source::File(path) => {
                let text = std::fs::read(&path).map_err(|error| {
                    let message = format!("could not read the seed file {path:?}: {error}");
                    io::Error::new(error.kind(), message)
                })?;
                let name = format!("the seed file {path:?}");
                let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text);
                let seed = Seed::parse(text).map_err(|problem| invalid(&name, &problem))?;
                Ok((name, Content::Seed(seed)))
            }
            Source::Seed(seed) => Ok(("the seed".to_owned(), Content::Seed(seed))),
            Source::Contact(contact) => {
                Ok(("the seeded contact".to_owned(), Content::Contact(contact)))
            }
        });
        Ok(LoadedSeeds(loaded.collect::<io::Result<_>>()?))
    }
}

/// Seeds that were read, each with what a message calls it.
#[derive(Debug)]
pub(super) struct LoadedSeeds(Vec<(String, Content)>);

#[derive(Debug)]
enum Content {
    Seed(Seed),
    Contact(SeedContact),
}

impl LoadedSeeds {
    /// Returns the time of the last seed that has one.
    pub(super) fn clock(&self) -> Option<i64> {
        self.0.iter().rev().find_map(|(_, content)| match content {
            Content::Seed(seed) => seed.clock,
            Content::Contact(_) => None,
        })
    }

    /// Completes settings with the keys and the dialects of the seeds. The last seed counts. A setting that is already made
    /// stays: the builder was told so.
    pub(super) fn complete(&self, settings: &mut Settings) {
        let seeds = self.0.iter().filter_map(|(_, content)| match content {
            Content::Seed(seed) => Some(&seed.settings),
            Content::Contact(_) => None,
        });
        seeds
            .fold(SeedSettings::default(), |before, seed| seed.or(before))
            .complete(settings);
    }

    /// Applies the seeds in order, at `now`.
    ///
    /// A ceiling that the audience already has stays: its builder was told so.
    ///
    /// # Errors
    ///
    /// Fails if a seed is invalid. The message says which.
    pub(super) fn apply(
        self,
        audience: &mut Audience,
        endpoints: &mut Endpoints,
        now: i64,
    ) -> io::Result<()> {
        let ceiling = audience.ceiling();
        for (name, content) in self.0 {
            let applied = match content {
                Content::Contact(contact) => audience.put_contact(contact, now).map(drop),
                Content::Seed(seed) => apply_seed(seed, audience, endpoints, now),
            };
            applied.map_err(|problem| invalid(&name, &problem))?;
        }
        if ceiling.is_some() {
            audience.set_ceiling(ceiling);
        }
        Ok(())
    }
}

fn apply_seed(
    mut seed: Seed,
    audience: &mut Audience,
    endpoints: &mut Endpoints,
    now: i64,
) -> Result<(), String> {
    let targets = targets(std::mem::take(&mut seed.endpoints))?;
    audience.seed(seed, now)?;
    for (name, target) in targets {
        endpoints.put(&name, target);
    }
    Ok(())
}

fn targets(endpoints: BTreeMap<String, SeedEndpoint>) -> Result<Vec<(String, Target)>, String> {
    endpoints
        .into_iter()
        .map(|(name, endpoint)| {
            let target = Target::new(&endpoint.url, &endpoint.secret)
                .map_err(|problem| format!("`endpoints.{name}`: {problem}"))?;
            Ok((name, target))
        })
        .collect()
}

fn invalid(name: &str, problem: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{name} is invalid: {problem}"),
    )
}

impl Shared {
    /// Applies a seed, then starts to move the clock to the time of the seed, if it has one.
    ///
    /// # Errors
    ///
    /// Fails if the seed is invalid. The message names the member. Nothing is changed then.
    pub(super) fn seed(self: &Arc<Self>, mut seed: Seed) -> Result<Option<ClockTarget>, String> {
        let clock = seed.clock;
        let targets = targets(std::mem::take(&mut seed.endpoints))?;
        // One lock for all of it, so that no request sees a part of the seed.
        let clock_target = {
            let mut state = self.lock();
            let now = clock.unwrap_or_else(|| self.clock.unix());
            state.audience.check_start_settings(&seed)?;
            state.audience.seed(seed, now)?;
            for (name, target) in targets {
                state.deliveries.put_endpoint(&name, target);
            }
            clock.map(|time| self.set_clock_of(&mut state, time))
        };
        self.update_schedule();
        Ok(clock_target)
    }
}
