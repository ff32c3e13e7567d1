use http::{HeaderMap, HeaderValue};

use super::error::VerifyError;
use super::report;
use super::signature::{EVENT_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, Tag, parse_timestamp};

/// The headers that matter, found but not yet read.
pub(super) struct Signed<'h> {
    pub(super) signature: &'h [u8],
    pub(super) timestamp: &'h [u8],
    pub(super) event_header: Option<&'h [u8]>,
}

impl<'h> Signed<'h> {
    pub(super) fn of(headers: &'h HeaderMap) -> Result<Self, VerifyError> {
        Self::among(|name| headers.get_all(name).iter().map(HeaderValue::as_bytes))
    }

    /// The headers that matter, out of whatever a framework keeps headers in.
    pub(super) fn among<V>(values: impl Fn(&'static str) -> V) -> Result<Self, VerifyError>
    where
        V: Iterator<Item = &'h [u8]>,
    {
        let one = |name| single(values(name), name);
        let signed = || {
            let parts = Self::required(one(SIGNATURE_HEADER)?, one(TIMESTAMP_HEADER)?)?;
            Ok(Self {
                event_header: one(EVENT_HEADER).ok().flatten(),
                ..parts
            })
        };
        signed().inspect_err(report::refused)
    }

    /// The values of the two signed headers, where somebody else looked for them.
    pub(super) fn parts(
        signature: Option<&'h [u8]>,
        timestamp: Option<&'h [u8]>,
    ) -> Result<Self, VerifyError> {
        Self::required(signature, timestamp).inspect_err(report::refused)
    }

    fn required(
        signature: Option<&'h [u8]>,
        timestamp: Option<&'h [u8]>,
    ) -> Result<Self, VerifyError> {
        let missing = |header| VerifyError::MissingHeader { header };
        Ok(Self {
            signature: signature.ok_or_else(|| missing(SIGNATURE_HEADER))?,
            timestamp: timestamp.ok_or_else(|| missing(TIMESTAMP_HEADER))?,
            event_header: None,
        })
    }

    /// What the two signed headers say, syntax judged.
    pub(super) fn parse(&self) -> Result<(Tag, u64), VerifyError> {
        let tag =
            Tag::parse(self.signature).map_err(|hint| VerifyError::MalformedSignature { hint })?;
        let timestamp = parse_timestamp(self.timestamp).ok_or(VerifyError::MalformedTimestamp)?;
        Ok((tag, timestamp))
    }
}

fn single<'h>(
    mut values: impl Iterator<Item = &'h [u8]>,
    header: &'static str,
) -> Result<Option<&'h [u8]>, VerifyError> {
    let first = values.next();
    if values.next().is_some() {
        return Err(VerifyError::DuplicateHeader { header });
    }
    Ok(first)
}
