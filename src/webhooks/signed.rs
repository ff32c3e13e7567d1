use http::{HeaderMap, HeaderName, HeaderValue};

use super::error::VerifyError;
use super::report;
use super::signature::{EVENT_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, Tag, parse_timestamp};

// Names that are parsed already: looking one up by its text costs three times as much.
static SIGNATURE: HeaderName = HeaderName::from_static(SIGNATURE_HEADER);
static TIMESTAMP: HeaderName = HeaderName::from_static(TIMESTAMP_HEADER);
static EVENT: HeaderName = HeaderName::from_static(EVENT_HEADER);

/// The headers that matter, found but not yet read.
pub(super) struct Signed<'h> {
    pub(super) signature: &'h [u8],
    pub(super) timestamp: &'h [u8],
    /// Where `webhook-event` may stand. It is looked up where somebody asks for it.
    pub(super) headers: Option<&'h HeaderMap>,
}

impl<'h> Signed<'h> {
    pub(super) fn of(headers: &'h HeaderMap) -> Result<Self, VerifyError> {
        let signed = Self::among(|name| headers.get_all(name).iter().map(HeaderValue::as_bytes))?;
        Ok(Self {
            headers: Some(headers),
            ..signed
        })
    }

    /// The headers that matter, out of whatever a framework keeps headers in.
    pub(super) fn among<V>(values: impl Fn(&'static HeaderName) -> V) -> Result<Self, VerifyError>
    where
        V: Iterator<Item = &'h [u8]>,
    {
        let one = |name: &'static HeaderName| single(values(name), name.as_str());
        one(&SIGNATURE)
            .and_then(|signature| Self::required(signature, one(&TIMESTAMP)?))
            .inspect_err(report::refused)
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
            headers: None,
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

/// The value of the unsigned `webhook-event` header, where it came exactly once.
pub(super) fn event_header(headers: &HeaderMap) -> Option<&[u8]> {
    let values = headers.get_all(&EVENT).iter().map(HeaderValue::as_bytes);
    single(values, EVENT_HEADER).ok().flatten()
}
