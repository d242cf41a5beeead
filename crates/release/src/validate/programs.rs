//! Calls of `puppet` and `ruby` that parse files, and their output.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::Deserialize;

use super::{FileProblem, SourceFile, Syntax, ValidateError};
use crate::temp_path::TempPath;

/// Directory of the programs of Puppet's own packages, which are not always on the PATH.
const AIO: [&str; 2] = ["/opt/puppetlabs/bin", "/opt/puppetlabs/puppet/bin"];
/// Characters of a program's output in a message, from its end.
const OUTPUT_LIMIT: usize = 1_000;
/// Reads `<syntax> <path>` lines, and prints one JSON object for each file that cannot be parsed.
const RUBY: &str = include_str!("validate.rb");

/// Programs that parse files. None: the program is not installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Programs {
    pub puppet: Option<PathBuf>,
    pub ruby: Option<PathBuf>,
}

impl Programs {
    /// Finds the programs on the PATH, or in the directories of Puppet's own packages.
    pub fn find() -> Self {
        let path = env::var_os("PATH").unwrap_or_default();
        let directories: Vec<PathBuf> = env::split_paths(&path).chain(AIO.map(PathBuf::from)).collect();
        let find = |name: &str| directories.iter().map(|directory| directory.join(name)).find(|path| is_program(path));
        Self { puppet: find("puppet"), ruby: find("ruby") }
    }

    pub(super) fn can_parse(&self, syntax: Syntax) -> bool {
        match syntax {
            Syntax::Manifest | Syntax::Epp => self.puppet.is_some(),
            Syntax::Erb => self.ruby.is_some(),
            Syntax::Yaml => true,
        }
    }

    /// Identifies the program that parses a syntax: another version may find other problems.
    pub(super) fn identity(&self, syntax: Syntax) -> String {
        let program = match syntax {
            Syntax::Manifest | Syntax::Epp => &self.puppet,
            Syntax::Erb | Syntax::Yaml => &self.ruby,
        };
        let Some(program) = program else { return "built in".to_owned() };
        let changed = fs::metadata(program).map(|meta| (meta.mtime(), meta.size())).unwrap_or_default();
        format!("{} {changed:?}", program.display())
    }
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// One error of `puppet parser validate --render-as json`.
#[derive(Deserialize)]
struct ManifestError {
    message: String,
    line: Option<u64>,
    pos: Option<u64>,
}

pub(super) fn check_manifests(programs: &Programs, files: &[SourceFile]) -> Result<Vec<FileProblem>, ValidateError> {
    let output = run_puppet(programs, &["parser", "validate", "--render-as", "json"], files)?;
    if output.status.success() {
        return Ok(Vec::new());
    }
    let errors: BTreeMap<String, ManifestError> =
        serde_json::from_slice(&output.stdout).map_err(|_| failed("puppet parser validate", &output))?;
    let problem = |file: &SourceFile| {
        let ManifestError { message, line, pos } = errors.get(file.source.to_str()?)?;
        Some(at_end_without_line(file, message, *line, *pos))
    };
    Ok(files.iter().filter_map(problem).collect())
}

pub(super) fn check_epp(programs: &Programs, files: &[SourceFile]) -> Result<Vec<FileProblem>, ValidateError> {
    let output = run_puppet(programs, &["epp", "validate", "--continue_on_error", "--color=false"], files)?;
    if output.status.success() {
        return Ok(Vec::new());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let found = files.iter().filter_map(|file| {
        // "Error: <message> (file: <path>, line: 1, column: 14)"
        let place = format!("(file: {}", file.source.display());
        let line = text.lines().find(|line| {
            line.split(&place).nth(1).is_some_and(|rest| rest.starts_with(',') || rest.starts_with(')'))
        })?;
        let (message, rest) = line.split_once(&place)?;
        let number = |name: &str| {
            let digits = rest.split(name).nth(1)?;
            digits.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
        };
        let message = message.trim().strip_prefix("Error: ").unwrap_or(message).trim();
        Some(at_end_without_line(file, message, number("line: "), number("column: ")))
    });
    let found: Vec<FileProblem> = found.collect();
    if found.is_empty() { Err(failed("puppet epp validate", &output)) } else { Ok(found) }
}

/// Puppet gives no line for "Syntax error at end of input": it is the last one.
fn at_end_without_line(file: &SourceFile, message: &str, line: Option<u64>, column: Option<u64>) -> FileProblem {
    let last = || fs::read(&file.source).ok().map(|text| text.split(|byte| *byte == b'\n').count() as u64);
    let last = || last().map(|lines| lines.saturating_sub(1).max(1));
    FileProblem { path: file.path.clone(), line: line.or_else(last), column, message: message.to_owned() }
}

fn run_puppet(programs: &Programs, args: &[&str], files: &[SourceFile]) -> Result<Output, ValidateError> {
    let program = programs.puppet.clone().unwrap_or_else(|| "puppet".into());
    let run_error = |source| ValidateError::Run { program: program.display().to_string(), source };
    // Puppet reads no configuration of this machine, and leaves nothing behind.
    let own = TempPath::in_dir(&env::temp_dir(), "validate");
    fs::create_dir(own.path()).map_err(run_error)?;
    let mut command = Command::new(&program);
    command.args(args);
    for option in ["--confdir", "--vardir", "--codedir", "--logdir", "--rundir", "--publicdir", "--ssldir"] {
        command.arg(option).arg(own.path().join(option.trim_start_matches('-')));
    }
    command.args(files.iter().map(|file| &file.source));
    command.env("HOME", own.path()).stdin(Stdio::null()).output().map_err(run_error)
}

#[derive(Deserialize)]
struct RubyError {
    path: String,
    line: Option<u64>,
    message: String,
}

/// Parses ERB templates and YAML files as Puppet does.
pub(super) fn check_with_ruby(programs: &Programs, files: &[SourceFile]) -> Result<Vec<FileProblem>, ValidateError> {
    let program = programs.ruby.clone().unwrap_or_else(|| "ruby".into());
    let run_error = |source| ValidateError::Run { program: program.display().to_string(), source };
    let mut command = Command::new(&program);
    command.args(["-W0", "-e", RUBY]).env("LC_ALL", "C.UTF-8");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(run_error)?;
    if let Some(mut stdin) = child.stdin.take() {
        let syntax = |file: &SourceFile| if file.syntax == Syntax::Erb { "erb" } else { "yaml" };
        let list: String = files.iter().map(|file| format!("{} {}\n", syntax(file), file.source.display())).collect();
        // The program reads all of its input before it prints.
        stdin.write_all(list.as_bytes()).map_err(run_error)?;
    }
    let output = child.wait_with_output().map_err(run_error)?;
    if !output.status.success() {
        return Err(failed("ruby", &output));
    }
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = lines.lines().map(serde_json::from_str::<RubyError>).collect::<Result<Vec<_>, _>>();
    let errors = errors.map_err(|_| failed("ruby", &output))?;
    let problem = |RubyError { path, line, message }: RubyError| {
        let file = files.iter().find(|file| file.source.to_str() == Some(path.as_str()))?;
        Some(FileProblem { path: file.path.clone(), line, column: None, message })
    };
    Ok(errors.into_iter().filter_map(problem).collect())
}

/// Parses YAML files without Ruby.
pub(super) fn check_yaml(files: &[SourceFile]) -> Result<Vec<FileProblem>, ValidateError> {
    let mut problems = Vec::new();
    for file in files {
        let text = fs::read(&file.source)
            .map_err(|source| ValidateError::Read { path: file.source.clone(), source })
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())?;
        let error = saphyr_parser::Parser::new_from_str(&text).find_map(Result::err);
        problems.extend(error.map(|error| FileProblem {
            path: file.path.clone(),
            line: Some(error.marker().line() as u64),
            column: Some(error.marker().col() as u64 + 1),
            message: error.info().to_owned(),
        }));
    }
    Ok(problems)
}

fn failed(program: &str, output: &Output) -> ValidateError {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let text = String::from_utf8_lossy(&text);
    let text = text.trim();
    let output = match text.chars().count() {
        0 => output.status.to_string(),
        length => text.chars().skip(length.saturating_sub(OUTPUT_LIMIT)).collect(),
    };
    ValidateError::Failed { program: program.to_owned(), output }
}
