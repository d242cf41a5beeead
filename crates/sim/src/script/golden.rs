//! Scripts and the transcripts that are checked in beside them: `NAME.txt` and `NAME.out`.

use std::path::Path;

use similar::TextDiff;

use super::read::read;
use super::stage::play;

/// What is to be done with a transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It is as it was.
    Compare,
    /// It is written anew.
    Update,
    /// It is only shown.
    Print,
}

/// What came of it, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    pub text: String,
    pub failed: bool,
}

/// Plays a script, and looks whether it is told as it was before.
pub fn go_through(script: &Path, wanted: Wanted) -> Compared {
    let file = script.display().to_string();
    let failed = |text: String| Compared { text, failed: true };
    let source = match std::fs::read_to_string(script) {
        Ok(source) => source,
        Err(error) => return failed(format!("{file}: cannot be read: {error}\n")),
    };
    let read = match read(&file, &source) {
        Ok(read) => read,
        Err(trouble) => return failed(format!("{trouble}\n")),
    };
    let told = play(&read, &file);
    let troubles: String = told.troubles.iter().map(|trouble| format!("{trouble}\n")).collect();
    let golden = script.with_extension("out");
    let (text, is_as_before) = match wanted {
        Wanted::Print => (told.transcript, true),
        Wanted::Update => match std::fs::write(&golden, &told.transcript) {
            Ok(()) => (format!("{}: written\n", golden.display()), true),
            Err(error) => (format!("{}: cannot be written: {error}\n", golden.display()), false),
        },
        Wanted::Compare => match std::fs::read_to_string(&golden) {
            Ok(before) if before == told.transcript => (format!("as told before: {}\n", read.title), true),
            Ok(before) => (difference(&golden, &before, &told.transcript), false),
            Err(error) => {
                let help = "`muster-sim --update` writes it; then read it before you check it in";
                (format!("{}: cannot be read: {error}\n  help: {help}\n", golden.display()), false)
            }
        },
    };
    Compared { text: format!("{text}{troubles}"), failed: !is_as_before || !told.troubles.is_empty() }
}

fn difference(golden: &Path, before: &str, now: &str) -> String {
    let diff = TextDiff::from_lines(before, now);
    let name = golden.display().to_string();
    let lines = diff.unified_diff().header(&name, "as it is told now").to_string();
    format!("{lines}  help: if this is right, `muster-sim --update` writes it, and you check it in\n")
}
