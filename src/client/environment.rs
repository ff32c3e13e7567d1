//! A client's base URL and key from the environment.

use std::env::VarError;

use super::builder::ClientBuilder;
use super::handle::Client;
use crate::Error;

const BASE_URL: &str = "AUDIENCE_URL";
const KEY: &str = "AUDIENCE_KEY";

impl Client {
    /// Creates a client with default settings from two environment variables: `AUDIENCE_URL`, the base
    /// URL, and `AUDIENCE_KEY`, the API key.
    ///
    /// For other settings, see [`ClientBuilder::from_env`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), as for [`ClientBuilder::from_env`] and
    /// [`ClientBuilder::build`].
    ///
    /// # Example: say which variable is missing
    ///
    /// ```
    /// use audience::Client;
    ///
    /// match Client::from_env() {
    ///     Ok(client) => println!("{client:?}"),
    ///     Err(error) => println!("{error}"), // the environment variable `AUDIENCE_URL` is not set
    /// }
    /// ```
    pub fn from_env() -> Result<Self, Error> {
        ClientBuilder::from_env()?.build()
    }
}

impl ClientBuilder {
    /// Creates a builder with the base URL from the environment variable `AUDIENCE_URL` and the key from
    /// `AUDIENCE_KEY`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if one of them is not set, empty or not valid
    /// Unicode. The error names the variable and never contains its value.
    ///
    /// # Example: a shorter timeout
    ///
    /// ```
    /// use std::time::Duration;
    /// use audience::{Client, ClientBuilder, Error};
    ///
    /// fn client() -> Result<Client, Error> {
    ///     ClientBuilder::from_env()?.timeout(Duration::from_secs(5)).build()
    /// }
    /// # let _ = client();
    /// ```
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(std::env::var)
    }

    fn from_variables(
        read: impl Fn(&'static str) -> Result<String, VarError>,
    ) -> Result<Self, Error> {
        let read = |name| {
            let problem = match read(name) {
                Ok(value) if value.trim().is_empty() => "empty",
                Ok(value) => return Ok(value),
                Err(VarError::NotPresent) => "not set",
                Err(VarError::NotUnicode(_)) => "not valid Unicode",
            };
            Err(Error::config(format!(
                "the environment variable `{name}` is {problem}"
            )))
        };
        Ok(Client::builder(read(BASE_URL)?, read(KEY)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    /// The client of a process with these variables.
    fn client(url: &Result<&str, VarError>, key: &Result<&str, VarError>) -> Result<Client, Error> {
        let read = |name| match name {
            BASE_URL => url.clone().map(str::to_owned),
            KEY => key.clone().map(str::to_owned),
            other => panic!("{other} is read"),
        };
        ClientBuilder::from_variables(read)?.build()
    }

    #[test]
    fn both_variables_are_read() {
        assert!(client(&Ok("https://api.example.com/v1"), &Ok("key")).is_ok());
    }

    #[test]
    fn an_error_names_the_variable_and_says_what_is_wrong_with_it() {
        let url = Ok("https://api.example.com");
        let missing = || Err(VarError::NotPresent);
        let odd = || Err(VarError::NotUnicode("hunter2".into()));
        for (url, key, expected) in [
            (missing(), missing(), "`AUDIENCE_URL` is not set"),
            (Ok(""), Ok("hunter2"), "`AUDIENCE_URL` is empty"),
            (odd(), Ok("hunter2"), "`AUDIENCE_URL` is not valid Unicode"),
            (url.clone(), missing(), "`AUDIENCE_KEY` is not set"),
            (url.clone(), Ok(" \n"), "`AUDIENCE_KEY` is empty"),
            (url, odd(), "`AUDIENCE_KEY` is not valid Unicode"),
        ] {
            let error = client(&url, &key).unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Config);
            assert_eq!(
                error.to_string(),
                format!("the environment variable {expected}")
            );
            assert!(!format!("{error:?}").contains("hunter2"));
        }
    }

    #[test]
    fn a_value_that_is_invalid_is_refused_as_for_any_other_client() {
        for (url, key) in [
            ("not a url", "hunter2"),
            ("https://api.example.com", "hunter2\n"),
        ] {
            let error = client(&Ok(url), &Ok(key)).unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(!format!("{error:?}").contains("hunter2"));
        }
    }
}
