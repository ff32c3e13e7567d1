//! What the webhook examples share.

use std::env;

use audience::webhooks::Verifier;

/// The help of an example that reads the signing secret from the environment.
pub(crate) const ENVIRONMENT: &str = "\
Environment, needed to receive:
  AUDIENCE_WEBHOOK_SECRET  Signing secret of the endpoint";

/// Creates a verifier with the signing secret of the environment.
pub(crate) fn verifier_from_env() -> Result<Verifier, String> {
    let secret = env::var("AUDIENCE_WEBHOOK_SECRET")
        .map_err(|_| "set AUDIENCE_WEBHOOK_SECRET to the signing secret of the endpoint")?;
    Verifier::new(secret).map_err(|error| error.to_string())
}
