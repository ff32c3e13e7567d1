//! Durations as people write them: `5h`, `1h30m`, `90`.

/// The units and their seconds.
const UNITS: [(&str, u64); 5] = [
    ("w", 604_800),
    ("d", 86_400),
    ("h", 3_600),
    ("m", 60),
    ("s", 1),
];

/// Parses a duration and returns its seconds.
///
/// # Errors
///
/// Fails if the text has another form, or if the duration is too long. The message names the form.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let form = "it is not a duration such as 90s, 5h, 1h30m or 2d";
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    let mut rest = text;
    let mut total = 0_u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| form)?;
        let (unit, length) = UNITS
            .iter()
            .find(|(unit, _)| after.starts_with(unit))
            .ok_or(form)?;
        total = number
            .checked_mul(*length)
            .and_then(|seconds| total.checked_add(seconds))
            .ok_or("it is too long")?;
        rest = &after[unit.len()..];
    }
    if text.is_empty() {
        Err(form.into())
    } else {
        Ok(total)
    }
}
