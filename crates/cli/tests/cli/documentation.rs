//! Checks every command block of the README and the book.
//!
//! A shell runs each block, with stand-ins for all programs. The stand-in of `muster` records its arguments, which the parser of
//! the real program must accept. So quotes, pipes and loops are those of the shell, and a block with an
//! option or a command that does not exist fails. Blocks of the README and of the quickstart run for real in the tests of fleets.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// Programs of the blocks besides `muster`. They print a number, which may be the argument of a command.
const OTHER_PROGRAMS: &str =
    "make curl jq etcdctl etcdutl apt-get cp mkdir cat date systemctl grep cargo muster-agent muster-sim";

/// A block of commands: its page, its line, and the text.
struct CommandBlock {
    place: String,
    script: String,
}

#[test]
fn commands_of_the_documentation_are_accepted() {
    let blocks = command_blocks();
    assert!(blocks.len() > 40, "only {} blocks were found", blocks.len());
    let dir = tempfile::tempdir().unwrap();
    let mut commands = 0;
    let mut problems = Vec::new();
    for block in blocks {
        for arguments in run(&block, dir.path()) {
            commands += 1;
            if let Err(error) = muster_cli::args::command(None).try_get_matches_from(&arguments) {
                problems.push(format!("{}: {}\n{error}", block.place, arguments.join(" ")));
            }
        }
    }
    assert!(commands > 80, "only {commands} commands were run");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

fn command_blocks() -> Vec<CommandBlock> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages: Vec<PathBuf> =
        fs::read_dir(root.join("docs/src")).unwrap().map(|page| page.unwrap().path()).collect();
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.push(root.join("README.md"));
    pages.sort();
    pages.iter().flat_map(|page| blocks_of(page)).collect()
}

/// The `console` blocks, without their output, and the `bash` blocks of a page.
fn blocks_of(page: &Path) -> Vec<CommandBlock> {
    let text = fs::read_to_string(page).unwrap();
    let mut blocks = Vec::new();
    let mut open: Option<(&str, CommandBlock)> = None;
    for (number, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language @ ("console" | "bash"))) => {
                let place = format!("{}:{}", page.file_name().unwrap().display(), number + 1);
                open = Some((language, CommandBlock { place, script: String::new() }));
            }
            (Some(_), Some(_)) => blocks.extend(open.take().map(|(_, block)| block)),
            (Some(("bash", block)), None) => block.script.push_str(&format!("{line}\n")),
            (Some((_, block)), None) => {
                let continued = block.script.ends_with("\\\n");
                if let Some(command) = line.strip_prefix("$ ").or(continued.then_some(line)) {
                    block.script.push_str(&format!("{command}\n"));
                }
            }
            (None, Some(_) | None) => {}
        }
    }
    blocks
}

/// The arguments of all commands of Muster in a block, in their order.
fn run(block: &CommandBlock, dir: &Path) -> Vec<Vec<String>> {
    let (programs, record) = (dir.join("programs"), dir.join("record"));
    fs::create_dir_all(&programs).unwrap();
    let stand_in = |name: &str, script: &str| {
        let path = programs.join(name);
        fs::write(&path, format!("#!/bin/bash\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    // In one write: a command in the background records at the same time as the next one.
    let recorder = r#"printf '%s\0' "${0##*/}" "$@" $'\n' >> "$RECORD""#;
    stand_in("muster", recorder);
    OTHER_PROGRAMS.split(' ').for_each(|name| stand_in(name, "echo 1"));
    fs::write(&record, "").unwrap();
    fs::write(dir.join("hosts"), "").unwrap();
    // A block may change to a directory that its earlier commands would have made.
    let script = format!("cd() {{ :; }}\nshopt -s expand_aliases\n{}\nwait\n", block.script);
    let output = Command::new("/bin/bash")
        .args(["-c", &script])
        .current_dir(dir)
        .env_clear()
        .env("PATH", &programs)
        .env("RECORD", &record)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("command not found") && !errors.contains("syntax error"), "{}: {errors}", block.place);
    let text = fs::read_to_string(&record).unwrap();
    let calls = text.split("\0\n\0").filter(|call| !call.is_empty());
    calls.map(|call| call.split('\0').map(str::to_owned).collect()).collect()
}
