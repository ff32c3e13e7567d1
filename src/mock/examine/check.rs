use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Defines [`Check`] from one table: variant, name, title.
macro_rules! checks {
    ($($(#[$docs:meta])* $variant:ident = $name:literal, $title:literal;)*) => {
        /// One thing that [`examine`](crate::mock::examine()) examines, in the order of the report.
        ///
        /// # Example: names
        ///
        /// ```
        /// use audience::mock::Check;
        ///
        /// assert_eq!(Check::TamperedBody.name(), "tampered-body");
        /// assert_eq!("tampered-body".parse(), Ok(Check::TamperedBody));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Check {
            $($(#[$docs])* $variant,)*
        }

        impl Check {
            /// All checks, in the order of the report.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the name, as `--only` takes it and JSON has it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns what is examined, in a few words.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$variant => $title,)*
                }
            }
        }
    };
}

checks! {
    /// Something answers HTTP at the URL, and takes a POST there.
    Reachable = "reachable", "the URL takes a POST";
    /// Genuine deliveries of all ten types get a 2xx (interface section 6.1).
    Genuine = "genuine", "all ten event types";
    /// The responses to genuine deliveries arrive in time (interface section 6.5). From half of the time, it is a
    /// warning.
    ResponseTime = "response-time", "responses arrive in time";
    /// The receiver's clock, by the `Date` header of its responses, agrees with this machine's to 5 s.
    Clock = "clock", "the clock is right";
    /// An event of a type that does not exist yet gets a 2xx.
    UnknownType = "unknown-type", "an unknown event type";
    /// JSON with reordered members, and with odd white space in it and around it, is verified as it was sent (interface section 5).
    RawBody = "raw-body", "reordered and oddly spaced JSON";
    /// Text beyond ASCII is verified as it was sent.
    NonAscii = "non-ascii", "text beyond ASCII";
    /// An event of 1 MB gets a 2xx.
    LargeBody = "large-body", "an event of 1 MB";
    /// The unsigned `webhook-event` header contradicts the body, whose `type` counts.
    EventHeader = "event-header", "a webhook-event header that lies";
    /// The same event at once again, with the same headers, gets a 2xx and has no effect.
    Duplicate = "duplicate", "the same event again";
    /// The same event seconds later, signed anew as each attempt is, gets a 2xx and has no effect.
    LaterDuplicate = "later-duplicate", "the same event later, signed anew";
    /// The same event 20 times at once has one effect.
    ConcurrentDuplicates = "concurrent-duplicates", "the same event 20 times at once";
    /// Two opens that differ by their id alone are two events (interface section 6.5).
    DistinctIds = "distinct-ids", "two events that differ by id alone";
    /// A delivery that is signed with another secret is refused.
    OtherSecret = "other-secret", "signed with another secret";
    /// A body that was changed after it was signed is refused.
    TamperedBody = "tampered-body", "a changed body";
    /// A delivery without `webhook-signature` is refused.
    MissingSignature = "missing-signature", "no signature header";
    /// An empty signature is refused.
    EmptySignature = "empty-signature", "an empty signature";
    /// The first half of the right signature is refused.
    CutSignature = "cut-signature", "half of the signature";
    /// The right signature in upper case is refused: interface section 5 says lowercase. Accepting it is a warning.
    UppercaseSignature = "uppercase-signature", "the signature in upper case";
    /// Two `webhook-signature` headers, one of them wrong, are refused. Accepting them is a warning, unless both are
    /// wrong.
    TwoSignatures = "two-signatures", "two signature headers";
    /// A delivery without `webhook-timestamp` is refused.
    MissingTimestamp = "missing-timestamp", "no timestamp header";
    /// A timestamp that is not a number is refused.
    MalformedTimestamp = "malformed-timestamp", "a timestamp that is no number";
    /// A delivery that was signed 301 s ago is refused (interface section 5). A window of up to 15 minutes is a warning.
    Stale = "stale", "signed 301 s ago";
    /// A delivery that is dated 301 s ahead is refused. A window of up to 15 minutes is a warning.
    Early = "early", "dated 301 s ahead";
    /// Deliveries 299 s old and 299 s ahead are accepted. Refusing them is a warning.
    WindowEdge = "window-edge", "299 s old, and 299 s ahead";
    /// A body that is signed but not JSON gets a response that is not a server error.
    NotJson = "not-json", "a signed body that is not JSON";
    /// A genuine delivery whose body takes 3 s to arrive gets a 2xx.
    SlowBody = "slow-body", "a body in pieces over 3 s";
    /// A delivery whose connection ends in the middle of the body has no effect, and the receiver still responds
    /// afterwards.
    CutConnection = "cut-connection", "a connection cut in mid-body";
    /// The probe of the application responds as it should.
    Probe = "probe", "how often the application acted";
}

impl Check {
    /// Whether a response alone cannot show that the receiver is right.
    pub(super) fn needs_probe(self) -> bool {
        matches!(
            self,
            Self::EventHeader
                | Self::Duplicate
                | Self::LaterDuplicate
                | Self::ConcurrentDuplicates
                | Self::DistinctIds
                | Self::Probe
        )
    }
}

/// Writes the name.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Reads a name.
impl FromStr for Check {
    type Err = UnknownCheck;

    fn from_str(name: &str) -> Result<Self, UnknownCheck> {
        let known = Self::ALL.iter().copied();
        known
            .into_iter()
            .find(|check| check.name() == name)
            .ok_or(UnknownCheck)
    }
}

/// The name is not that of a [`Check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no check of this name; the documentation of `Check` lists them")]
pub struct UnknownCheck;
