//! What the webhook examples share.

/// The help of an example that reads the signing secret from the environment.
pub(crate) const ENVIRONMENT: &str = "\
Environment, needed to receive:
  AUDIENCE_WEBHOOK_SECRET  Signing secret of the endpoint";
