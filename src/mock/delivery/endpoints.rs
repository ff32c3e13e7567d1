//! The webhook endpoints that events are delivered to.

use super::post::Target;

/// The webhook endpoints, in the order they were added.
#[derive(Clone, Debug, Default)]
pub(in crate::mock) struct Endpoints {
    list: Vec<Endpoint>,
    last_number: u64,
}

/// A named place that events are delivered to.
#[derive(Clone, Debug)]
pub(in crate::mock) struct Endpoint {
    /// Counted from 1. The number of a removed endpoint is not used again.
    pub(in crate::mock) number: u64,
    pub(in crate::mock) name: String,
    pub(in crate::mock) target: Target,
}

impl Endpoints {
    /// Adds an endpoint, or changes the URL and the secret of the endpoint with this name.
    pub(in crate::mock) fn put(&mut self, name: &str, target: Target) {
        if let Some(endpoint) = self.list.iter_mut().find(|endpoint| endpoint.name == name) {
            endpoint.target = target;
            return;
        }
        self.last_number += 1;
        self.list.push(Endpoint {
            number: self.last_number,
            name: name.to_owned(),
            target,
        });
    }

    /// Removes an endpoint and returns its number, or returns `None` if no endpoint has this name.
    pub(in crate::mock) fn remove(&mut self, name: &str) -> Option<u64> {
        let index = self
            .list
            .iter()
            .position(|endpoint| endpoint.name == name)?;
        Some(self.list.remove(index).number)
    }

    /// Finds an endpoint by its number.
    pub(in crate::mock) fn find(&self, number: u64) -> Option<&Endpoint> {
        self.list.iter().find(|endpoint| endpoint.number == number)
    }

    /// Returns the endpoints, in the order they were added.
    pub(in crate::mock) fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.list.iter()
    }

    /// Returns the number of every endpoint, in the order they were added.
    pub(in crate::mock) fn numbers(&self) -> impl ExactSizeIterator<Item = u64> {
        self.list.iter().map(|endpoint| endpoint.number)
    }
}
