use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// JSON whose text is kept exactly, because no other Rust value can represent it: see
/// [`PropertyValue::Exact`](crate::contacts::PropertyValue::Exact).
///
/// It is written as that JSON, not as a string.
/// [`PropertyValue::from_json`](crate::contacts::PropertyValue::from_json) creates it.
///
/// # Example: a number of any size
///
/// ```
/// use audience::contacts::PropertyValue;
///
/// let value = PropertyValue::from_json("1e400")?;
///
/// if let PropertyValue::Exact(number) = &value {
///     assert_eq!(number.as_str(), "1e400");
/// }
/// assert_eq!(serde_json::to_string(&value).unwrap(), "1e400");
/// # assert!(matches!(value, PropertyValue::Exact(_)));
/// # Ok::<(), audience::Error>(())
/// ```
#[derive(Clone)]
pub struct JsonText(Box<RawValue>);

impl JsonText {
    pub(super) fn new(json: &RawValue) -> Self {
        Self(json.to_owned())
    }

    /// Returns the text, which is valid JSON.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

/// Compares the text: `1e400` and `10e399` differ.
impl PartialEq for JsonText {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for JsonText {}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JsonText").field(&self.as_str()).finish()
    }
}

impl fmt::Display for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
