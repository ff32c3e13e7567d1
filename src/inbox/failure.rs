use std::error::Error;
use std::fmt::Write;

/// The longest reason that is stored, in bytes.
const MAX_REASON: usize = 2_000;

/// Why a handler failed, as text.
#[derive(Debug)]
pub(super) struct Failure(String);

impl Failure {
    /// Reads the error of a handler, and its sources.
    pub(super) fn of_error(error: &(dyn Error + 'static)) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        // An error may be its own source, so the length ends the loop.
        while let Some(error) = source
            && text.len() < MAX_REASON
        {
            let _ = write!(text, ": {error}");
            source = error.source();
        }
        Self::new(text)
    }

    /// Reads the message of a panic.
    pub(super) fn of_panic(payload: &(dyn std::any::Any + Send)) -> Self {
        let message = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self::new(match message {
            Some(message) => format!("the handler panicked: {message}"),
            None => "the handler panicked".to_owned(),
        })
    }

    fn new(mut text: String) -> Self {
        // Databases refuse it.
        text.retain(|c| c != '\0');
        if let Some((end, _)) = text.char_indices().find(|(at, _)| *at > MAX_REASON - 4) {
            text.truncate(end);
        }
        Self(text)
    }

    pub(super) fn reason(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Outer(std::io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("could not store the bounce")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    /// An error that is its own source.
    #[derive(Debug)]
    struct Endless;

    impl fmt::Display for Endless {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            Ok(())
        }
    }

    impl Error for Endless {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(self)
        }
    }

    #[test]
    fn a_reason_has_the_error_and_its_sources() {
        let error = Outer(std::io::Error::other("disk full"));

        let failure = Failure::of_error(&error);

        assert_eq!(failure.reason(), "could not store the bounce: disk full");
    }

    #[test]
    fn a_reason_has_at_most_2000_bytes_of_whole_characters() {
        for (character, shift) in [("\u{1f4e7}", 0), ("\u{1f4e7}", 1), ("\u{e9}", 1), ("x", 0)] {
            let text = format!("{}{}", "x".repeat(shift), character.repeat(3_000));

            let failure = Failure::of_error(&std::io::Error::other(text));

            let length = failure.reason().len();
            assert!((1_990..=2_000).contains(&length), "{length}");
            assert!(failure.reason().ends_with(character));
        }
    }

    #[test]
    fn a_reason_has_no_nul() {
        let failure = Failure::of_error(&std::io::Error::other("a\0b"));

        assert_eq!(failure.reason(), "ab");
    }

    #[test]
    fn an_error_that_is_its_own_source_has_a_reason() {
        assert!(Failure::of_error(&Endless).reason().len() <= 2_000);
    }

    #[test]
    fn a_panic_has_its_message_as_reason() {
        let payloads: [Box<dyn std::any::Any + Send>; 3] =
            [Box::new("a"), Box::new("b".to_owned()), Box::new(3)];

        let reasons = payloads.map(|payload| Failure::of_panic(payload.as_ref()).0);

        let expected = [
            "the handler panicked: a",
            "the handler panicked: b",
            "the handler panicked",
        ];
        assert_eq!(reasons, expected);
    }
}
