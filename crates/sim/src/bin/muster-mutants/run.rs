//! Runs the simulator for a seed or a scenario, with or without a guard, and reads the result.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::copy::VARIABLE;

/// The time limit of a run, which normally takes less than a second. A mutant may never end.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The time limit of a search for a seed.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest message that is shown.
const LONGEST: usize = 110;

/// The simulator of the copy.
#[derive(Clone, Debug)]
pub(crate) struct Simulator {
    pub(crate) program: PathBuf,
    /// The directory that contains `scenarios/`.
    pub(crate) folder: PathBuf,
}

/// A violated rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleViolation {
    pub(crate) seed: u64,
    pub(crate) rule: String,
    pub(crate) what: String,
}

impl Simulator {
    /// The violation of a seed.
    pub(crate) fn run_seed(&self, seed: u64, without: Option<&str>) -> Result<Option<RuleViolation>> {
        self.first(seed, seed + 1, without, TIMEOUT)
    }

    /// The first seed that violates this rule; otherwise the first other violation.
    pub(crate) fn search(
        &self,
        rule: &str,
        most: u64,
        without: &str,
    ) -> Result<Result<RuleViolation, Option<RuleViolation>>> {
        let mut another = None;
        let mut from = 0;
        while let Some(violation) = self.first(from, most, Some(without), SEARCH_TIMEOUT)? {
            if violation.rule == rule {
                return Ok(Ok(violation));
            }
            from = violation.seed + 1;
            another = another.or(Some(violation));
        }
        Ok(Err(another))
    }

    fn first(&self, from: u64, to: u64, without: Option<&str>, timeout: Duration) -> Result<Option<RuleViolation>> {
        let (passed, output) = self.run(&["--seeds", &format!("{from}..{to}")], without, timeout)?;
        let first = output.lines().next().unwrap_or_default();
        let read = || {
            let (seed, rest) = first.strip_prefix("seed ")?.split_once(" violates a rule at ")?;
            let (rule, what) = rest.split_once(" s: ")?.1.split_once(": ")?;
            Some(RuleViolation { seed: seed.parse().ok()?, rule: rule.to_owned(), what: what.to_owned() })
        };
        match read() {
            Some(violation) => Ok(Some(violation)),
            None if passed => Ok(None),
            None => {
                let what = format!("the run ended without a result: {first}");
                Ok(Some(RuleViolation { seed: from, rule: "no end".into(), what }))
            }
        }
    }

    /// The difference of a scenario's transcript.
    pub(crate) fn play(&self, name: &str, without: Option<&str>) -> Result<Option<String>> {
        let script = Path::new("scenarios").join(name).with_extension("txt");
        let (passed, output) = self.run(&[&script.display().to_string()], without, TIMEOUT)?;
        Ok((!passed).then(|| summarize_failure(&output)))
    }

    /// Runs the simulator. Returns its success and its output.
    fn run(&self, arguments: &[&str], without: Option<&str>, timeout: Duration) -> Result<(bool, String)> {
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&self.folder).env_remove(VARIABLE);
        if let Some(guard) = without {
            command.env(VARIABLE, guard);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("{} cannot be started", self.program.display()))?;
        let mut out = child.stdout.take().context("the simulator has no output pipe")?;
        let (done, output) = sync_channel(1);
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = out.read_to_end(&mut bytes);
            let _ = done.send(bytes);
        });
        let bytes = output.recv_timeout(timeout);
        if bytes.is_err() {
            child.kill().context("cannot stop a run after its timeout")?;
        }
        let status = child.wait().context("cannot read the exit status of the simulator")?;
        let output = bytes.map_or_else(
            |_| format!("timeout after {} s", timeout.as_secs()),
            |bytes| String::from_utf8_lossy(&bytes).into_owned(),
        );
        Ok((status.success(), output))
    }
}

/// The most informative line: a violation, a failed assertion, or the first new line.
fn summarize_failure(output: &str) -> String {
    let rule = output.lines().find_map(|line| line.split_once("VIOLATION of ")).map(|(_, what)| what);
    let assertion = || output.lines().find_map(|line| line.split_once("FAILED: ")).map(|(_, what)| what);
    let new = || output.lines().find(|line| line.starts_with('+') && !line.starts_with("+++")).map(|line| &line[1..]);
    let line = match (rule, assertion(), new()) {
        (Some(rule), _, _) => rule.to_owned(),
        (None, Some(assertion), _) => format!("assertion failed: {assertion}"),
        (None, None, Some(new)) => format!("new line: {}", new.trim()),
        (None, None, None) => output.lines().next().unwrap_or("it fails without output").to_owned(),
    };
    short(&line)
}

/// Shortens a line to fit beside others.
pub(crate) fn short(line: &str) -> String {
    match line.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violation_is_preferred_to_a_new_line() {
        assert_eq!(
            summarize_failure("--- a\n+++ b\n+ 0:10 web1\n+  FAILED: web runs v2\n"),
            "assertion failed: web runs v2"
        );
        assert_eq!(summarize_failure("--- a\n+++ b\n+ 0:10 web1\n+VIOLATION of I3: too many\n"), "I3: too many");
        assert_eq!(summarize_failure("--- a\n+++ b\n-x\n+ 0:10 web1\n"), "new line: 0:10 web1");
    }
}
