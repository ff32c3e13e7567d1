const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Decodes either alphabet, with or without padding.
pub(super) fn decode<'a>(text: impl IntoIterator<Item = &'a u8>) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    let (mut bits, mut held, mut digits) = (0_u32, 0, 0_usize);
    let mut is_padded = false;
    for byte in text {
        let sextet = match byte {
            b'=' => {
                is_padded = true;
                continue;
            }
            _ if is_padded => return None,
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(sextet);
        held += 6;
        digits += 1;
        if held >= 8 {
            held -= 8;
            decoded.push(u8::try_from(bits >> held & 0xff).ok()?);
        }
    }
    (digits > 0 && digits % 4 != 1).then_some(decoded)
}

pub(super) fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut three = [0; 3];
        three[..chunk.len()].copy_from_slice(chunk);
        let [a, b, c] = three.map(usize::from);
        let sextets = [
            a >> 2,
            (a << 4 | b >> 4) & 63,
            (b << 2 | c >> 6) & 63,
            c & 63,
        ];
        for (index, sextet) in sextets.into_iter().enumerate() {
            encoded.push(if index <= chunk.len() {
                DIGITS[sextet]
            } else {
                b'='
            });
        }
    }
    encoded
}
