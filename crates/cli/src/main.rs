//! The `muster` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    muster_cli::main()
}
