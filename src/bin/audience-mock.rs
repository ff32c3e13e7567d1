//! The mock service as a program, for tests in any language.

fn main() -> std::process::ExitCode {
    audience::mock::run_program()
}
