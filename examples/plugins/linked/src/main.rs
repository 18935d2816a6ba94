//! The router, with one plugin more.

use std::process::ExitCode;

fn main() -> ExitCode {
    quiver::run(&[ttl_limit::plugin()])
}
