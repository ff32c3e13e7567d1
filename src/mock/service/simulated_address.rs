//! The addresses that decide what happens to mail sent to them.

use super::mail_outcome::MailOutcome;

/// Seconds after which mail to `delay@…` is delivered.
pub(super) const DELAY: i64 = 300;

/// What happens to mail to an address once it is sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Course {
    /// What happens at once, in order.
    pub(super) outcomes: Vec<MailOutcome>,
    /// Whether the mail is delivered after [`DELAY`].
    pub(super) is_delivered_later: bool,
}

/// Returns what happens to mail to a normalized address.
///
/// Its local part decides, up to a `+`, in any domain. The docs of [`mock`](crate::mock#mail) have the same list.
pub(super) fn course(address: &str) -> Course {
    let local = address.split_once('@').map_or(address, |(local, _)| local);
    let name = local.split_once('+').map_or(local, |(name, _)| name);
    let delivered = MailOutcome::delivered;
    let outcomes = match name {
        "bounce" => vec![MailOutcome::bounced()],
        "soft-bounce" => vec![MailOutcome::bounced().bounce_type("Transient")],
        "delay" => vec![MailOutcome::delayed()],
        "fail" => vec![MailOutcome::failed()],
        "complain" => vec![delivered(), MailOutcome::complained()],
        "open" => vec![delivered(), MailOutcome::opened()],
        "click" => vec![delivered(), MailOutcome::opened(), MailOutcome::clicked()],
        "pending" => Vec::new(),
        _ => vec![delivered()],
    };
    Course {
        outcomes,
        is_delivered_later: name == "delay",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_part_up_to_a_plus_decides_in_any_domain() {
        let bounced = [MailOutcome::bounced()];

        assert_eq!(course("bounce@x.io").outcomes, bounced);
        assert_eq!(course("bounce+ada+1@example.com").outcomes, bounced);
        for ordinary in [
            "bounces@x.io",
            "bouncer+bounce@x.io",
            "a@bounce.io",
            "+bounce@x.io",
        ] {
            assert_eq!(
                course(ordinary).outcomes,
                [MailOutcome::delivered()],
                "{ordinary}"
            );
        }
    }
}
