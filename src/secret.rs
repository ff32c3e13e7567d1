use std::fmt;

/// Text that `Debug` never prints, such as an API key. Its memory is zeroed on drop.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text. Review every call of this method: the text must not be logged or printed.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_does_not_print_the_secret() {
        let secret = Secret::new("k-12345");

        assert_eq!(
            format!("{secret:?} {:#?}", secret.clone()),
            "<secret> <secret>"
        );
        assert_eq!(secret.expose(), "k-12345");
    }
}
