//! Compares scripts with their checked-in transcripts: `NAME.txt` and `NAME.out`.

use std::path::Path;

use similar::TextDiff;

use super::parser::parse;
use super::player::play;

/// What to do with a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoldenMode {
    /// Compare it with the checked-in one.
    Compare,
    /// Write it.
    Update,
    /// Only print it.
    Print,
}

/// The result, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoldenResult {
    pub text: String,
    pub failed: bool,
}

/// Plays a script, and compares its transcript.
pub fn check_script(script: &Path, wanted: GoldenMode) -> GoldenResult {
    let file = script.display().to_string();
    let failed = |text: String| GoldenResult { text, failed: true };
    let source = match std::fs::read_to_string(script) {
        Ok(source) => source,
        Err(error) => return failed(format!("{file}: cannot be read: {error}\n")),
    };
    let script_read = match parse(&file, &source) {
        Ok(script) => script,
        Err(failure) => {
            return failed(format!(
                "{failure}
"
            ));
        }
    };
    let played = play(&script_read, &file);
    let failures: String = played
        .failures
        .iter()
        .map(|failure| {
            format!(
                "{failure}
"
            )
        })
        .collect();
    let golden = script.with_extension("out");
    let (text, is_as_before) = match wanted {
        GoldenMode::Print => (played.transcript, true),
        GoldenMode::Update => match std::fs::write(&golden, &played.transcript) {
            Ok(()) => (format!("{}: written\n", golden.display()), true),
            Err(error) => (format!("{}: cannot be written: {error}\n", golden.display()), false),
        },
        GoldenMode::Compare => match std::fs::read_to_string(&golden) {
            Ok(before) if before == played.transcript => (format!("as played before: {}\n", script_read.title), true),
            Ok(before) => (difference(&golden, &before, &played.transcript), false),
            Err(error) => {
                let help = "`muster-sim --update` writes it; then read it before you check it in";
                (format!("{}: cannot be read: {error}\n  help: {help}\n", golden.display()), false)
            }
        },
    };
    GoldenResult { text: format!("{text}{failures}"), failed: !is_as_before || !played.failures.is_empty() }
}

fn difference(golden: &Path, before: &str, now: &str) -> String {
    let diff = TextDiff::from_lines(before, now);
    let name = golden.display().to_string();
    let lines = diff.unified_diff().header(&name, "as it is played now").to_string();
    format!("{lines}  help: if this is right, `muster-sim --update` writes it, and you check it in\n")
}
