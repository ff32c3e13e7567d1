//! Parses arbitrary `authentication_results`. Input: the text.
#![no_main]

use audience::webhooks::AuthenticationResults;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let results = AuthenticationResults::from(text);

    for part in [results.authserv_id(), results.mail_from_domain()] {
        assert!(part.is_none_or(|part| !part.is_empty() && text.contains(part)));
    }
    for result in [results.spf(), results.dkim(), results.dmarc()] {
        assert!(result.is_none_or(|result| !result.as_str().is_empty()));
    }
    assert_eq!(results.as_str(), text);
});
