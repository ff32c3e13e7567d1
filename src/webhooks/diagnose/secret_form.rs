use std::fmt;

use super::base64;
use crate::secret::trim;

/// The form of a given secret that a delivery was signed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SecretForm {
    /// The given secret without the white space around it.
    Trimmed,
    /// The given secret followed by a newline.
    WithNewline,
    /// The given secret decoded from hex.
    HexDecoded,
    /// The given secret encoded as hex: it was decoded, but should not have been.
    HexEncoded,
    /// The given secret decoded from base64.
    Base64Decoded,
    /// The given secret encoded as base64: it was decoded, but should not have been.
    Base64Encoded,
    /// The given secret without `whsec_`, decoded from base64, as in Standard Webhooks.
    Base64DecodedWithoutPrefix,
    /// The given secret without `whsec_`.
    WithoutPrefix,
    /// The given secret with `whsec_` in front.
    WithPrefix,
}

impl fmt::Display for SecretForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trimmed => "without the white space around it",
            Self::WithNewline => "followed by a newline",
            Self::HexDecoded => "decoded from hex",
            Self::HexEncoded => "encoded as hex",
            Self::Base64Decoded => "decoded from base64",
            Self::Base64Encoded => "encoded as base64",
            Self::Base64DecodedWithoutPrefix => "without the prefix whsec_, decoded from base64",
            Self::WithoutPrefix => "without the prefix whsec_",
            Self::WithPrefix => "with the prefix whsec_",
        })
    }
}

const PREFIX: &[u8] = b"whsec_";

/// Returns the secret in every other form.
pub(super) fn other_forms(secret: &[u8]) -> impl Iterator<Item = (SecretForm, Vec<u8>)> {
    let text = str::from_utf8(secret).unwrap_or_default();
    let trimmed = trim(text).as_bytes();
    let stripped = secret.strip_prefix(PREFIX);

    [
        (
            SecretForm::Trimmed,
            (trimmed.len() < text.len()).then(|| trimmed.to_vec()),
        ),
        (SecretForm::WithNewline, Some([secret, b"\n"].concat())),
        (
            SecretForm::HexDecoded,
            hex::decode(trimmed).ok().filter(|bytes| !bytes.is_empty()),
        ),
        (SecretForm::HexEncoded, Some(hex::encode(secret).into())),
        (SecretForm::Base64Decoded, base64::decode(trimmed)),
        (SecretForm::Base64Encoded, Some(base64::encode(secret))),
        (
            SecretForm::Base64DecodedWithoutPrefix,
            stripped.and_then(base64::decode),
        ),
        (SecretForm::WithoutPrefix, stripped.map(<[u8]>::to_vec)),
        (SecretForm::WithPrefix, Some([PREFIX, secret].concat())),
    ]
    .into_iter()
    .filter_map(|(form, secret)| Some((form, secret?)))
}
