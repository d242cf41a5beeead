//! Checks that the command line reference of the book is the help of every command.

use std::path::Path;

use clap::CommandFactory;
use muster_cli::args::Cli;

#[test]
fn checked_in_reference_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/cli-reference.md");
    let real = reference();
    if std::env::var_os("UPDATE_CLI_REFERENCE").is_some() {
        std::fs::write(&path, &real).unwrap();
    }
    let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == real,
        "docs/src/cli-reference.md is not current: run `make reference`, and review the difference"
    );
}

fn reference() -> String {
    let mut page =
        "# Command line reference\n\nThis page is generated from `muster --help` and the help of every command.\n"
            .to_owned();
    // The values of variables of this process must not show.
    let mut root = Cli::command().term_width(100).bin_name("muster");
    root.build();
    describe(&mut root, &mut page);
    page
}

fn describe(command: &mut clap::Command, page: &mut String) {
    let name = command.get_bin_name().unwrap_or("muster").to_owned();
    let level = "#".repeat(name.split(' ').count().min(3) + 1);
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    page.push_str(&format!("\n{level} `{name}`\n\n```text\n{}\n```\n", help.join("\n").trim_end()));
    for sub in command.get_subcommands_mut().filter(|sub| sub.get_name() != "help") {
        describe(sub, page);
    }
}
