//! The faults that a server applies to requests.

use super::fault::Fault;

/// The active faults, in the order they were added.
#[derive(Debug, Default)]
pub(in crate::mock) struct ActiveFaults(Vec<Fault>);

impl ActiveFaults {
    /// Returns the faults in the order they apply.
    pub(in crate::mock) fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter()
    }

    pub(in crate::mock) fn add(&mut self, fault: Fault) {
        if fault.times != Some(0) {
            self.0.push(fault);
        }
    }

    pub(in crate::mock) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the first fault that has begun and matches a request, and counts it as used once.
    ///
    /// Every fault that matches but has not begun counts the request, whether or not another fault applies to it.
    pub(in crate::mock) fn take(&mut self, method: &str, path: &str) -> Option<Fault> {
        let mut first = None;
        for (index, fault) in self.0.iter_mut().enumerate() {
            if !fault.matches(method, path) {
                continue;
            }
            if fault.after > 0 {
                fault.after -= 1;
            } else if first.is_none() {
                first = Some(index);
            }
        }
        let index = first?;
        match &mut self.0[index].times {
            Some(1) => Some(self.0.remove(index)),
            Some(left) => {
                *left -= 1;
                Some(self.0[index].clone())
            }
            None => Some(self.0[index].clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fault::FaultKind;
    use super::*;

    fn kinds(faults: &mut ActiveFaults, requests: &[(&str, &str)]) -> Vec<Option<FaultKind>> {
        requests
            .iter()
            .map(|(method, path)| faults.take(method, path).map(|fault| fault.kind))
            .collect()
    }

    #[test]
    fn a_used_up_fault_is_followed_by_the_next() {
        let mut faults = ActiveFaults::default();
        faults.add(Fault::status(503).times(2));
        faults.add(Fault::status(500).times(1));
        faults.add(Fault::status(502).times(0));

        let taken = kinds(&mut faults, &[("GET", "/a"); 4]);

        assert_eq!(
            taken,
            [
                Some(FaultKind::Status(503)),
                Some(FaultKind::Status(503)),
                Some(FaultKind::Status(500)),
                None
            ]
        );
    }

    #[test]
    fn a_fault_without_a_count_applies_until_it_is_cleared() {
        let mut faults = ActiveFaults::default();
        faults.add(Fault::close_before());

        assert_eq!(
            kinds(&mut faults, &[("GET", "/"); 50]),
            [Some(FaultKind::CloseBefore); 50]
        );

        faults.clear();
        assert_eq!(kinds(&mut faults, &[("GET", "/")]), [None]);
    }

    #[test]
    fn a_fault_lets_requests_through_before_it_begins() {
        let mut faults = ActiveFaults::default();
        faults.add(Fault::status(503).method("POST").after(2).times(1));

        let taken = kinds(
            &mut faults,
            &[
                ("POST", "/"),
                ("GET", "/"),
                ("POST", "/"),
                ("GET", "/"),
                ("POST", "/"),
                ("POST", "/"),
            ],
        );

        let failed = Some(FaultKind::Status(503));
        assert_eq!(taken, [None, None, None, None, failed, None]);
    }

    #[test]
    fn a_waiting_fault_counts_requests_that_another_fault_applies_to() {
        let mut faults = ActiveFaults::default();
        faults.add(Fault::status(501).after(3).times(1));
        faults.add(Fault::status(503).times(2));
        faults.add(Fault::status(500).after(1));

        let taken = kinds(&mut faults, &[("GET", "/"); 5]);

        assert_eq!(
            taken,
            [503, 503, 500, 501, 500].map(|status| Some(FaultKind::Status(status)))
        );
    }

    #[test]
    fn a_fault_applies_only_to_its_method_and_path() {
        let mut faults = ActiveFaults::default();
        faults.add(Fault::garbage().method("post").path("/contacts"));

        let taken = kinds(
            &mut faults,
            &[
                ("GET", "/contacts"),
                ("POST", "/contacts/batch"),
                ("POST", "/contacts"),
            ],
        );

        assert_eq!(taken, [None, None, Some(FaultKind::Garbage)]);
    }
}
