//! Contacts, lists and webhooks from a shell.

fn main() -> std::process::ExitCode {
    audience::run_program()
}
