//! Prints the table, the methods and the machine.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the one place of this program that prints")]

use std::fmt::Display;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::args::{Name, TableFormat};
use crate::bench::Bench;
use crate::compare::Comparison;
use crate::measures;
use crate::parts::machine::MachineInfo;
use crate::parts::run_facts::RunFacts;
use crate::row::BenchRow;

/// Version of the JSON of a run. It changes with the meaning of a field.
const SCHEMA: u32 = 1;

/// All results of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BenchReport {
    schema: u32,
    pub(crate) run: RunFacts,
    pub(crate) machine: MachineInfo,
    /// True if the benchmarks were run with --quick.
    pub(crate) quick: bool,
    pub(crate) measured: Vec<Measured>,
    pub(crate) failed: Vec<Failed>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) name: String,
    pub(crate) rows: Vec<BenchRow>,
    pub(crate) how: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failed {
    pub(crate) name: String,
    pub(crate) why: String,
}

/// Output of a run for other programs: the run, and its comparison with a kept one.
#[derive(Serialize)]
struct JsonOutput<'a> {
    #[serde(flatten)]
    report: &'a BenchReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<&'a Comparison>,
}

impl BenchReport {
    pub(crate) fn new(bench: &Bench, quick: bool) -> anyhow::Result<Self> {
        let (machine, run) = (MachineInfo::read(bench.scratch())?, RunFacts::read(bench)?);
        Ok(Self { schema: SCHEMA, run, machine, quick, measured: Vec::new(), failed: Vec::new() })
    }

    /// Reads the JSON of an earlier run.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("cannot use {}", path.display()))
    }

    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Schema {
            schema: Option<u32>,
        }
        let Schema { schema } = serde_json::from_str(text).context("it is not the JSON of a run (-o json)")?;
        let found = schema.map_or_else(|| "no schema version".to_owned(), |schema| format!("schema version {schema}"));
        anyhow::ensure!(
            schema == Some(SCHEMA),
            "it has {found}, and this program reads version {SCHEMA}: run the benchmarks of that commit again"
        );
        serde_json::from_str(text).context("it is not the JSON of a run (-o json)")
    }

    /// The rows with the names of their benchmarks.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&str, &BenchRow)> {
        self.measured.iter().flat_map(|measured| measured.rows.iter().map(|row| (measured.name.as_str(), row)))
    }

    /// A run for tests.
    #[cfg(test)]
    pub(crate) fn example(measured: &[(&str, Vec<BenchRow>)]) -> Self {
        let measured = measured.iter().map(|(name, rows)| Measured {
            name: (*name).to_owned(),
            rows: rows.clone(),
            how: "a test".to_owned(),
        });
        let (run, machine) = (RunFacts::example(), MachineInfo::example());
        Self { schema: SCHEMA, run, machine, quick: false, measured: measured.collect(), failed: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: Name, rows: Vec<BenchRow>) {
        let (name, how) = (name.word().to_owned(), measures::method(name).to_owned());
        self.measured.push(Measured { name, rows, how });
    }

    pub(crate) fn fail(&mut self, name: Name, why: &anyhow::Error) {
        progress(format_args!("{}: {why:#}", name.word()));
        self.failed.push(Failed { name: name.word().to_owned(), why: format!("{why:#}") });
    }

    pub(crate) fn print(&self, format: TableFormat, comparison: Option<&Comparison>) {
        match format {
            TableFormat::Table => print!("{}{}", self.text(), comparison.map(Comparison::text).unwrap_or_default()),
            TableFormat::Json => match serde_json::to_string_pretty(&JsonOutput { report: self, comparison }) {
                Ok(text) => println!("{text}"),
                Err(error) => complain(&error.into()),
            },
        }
    }

    fn text(&self) -> String {
        let mut lines = vec![["MEASURE", "TARGET", "MEASURED", "VERDICT"].map(str::to_owned)];
        for (_, row) in self.rows() {
            lines.push([row.measure.clone(), row.target_text(), row.value_text(), row.verdict_text().to_owned()]);
        }
        let mut text = table(&lines);
        text.push_str("\nHow it was measured\n");
        for Measured { name, how, .. } in &self.measured {
            text.push_str(&format!("  {name}: {}\n", wrapped(how)));
        }
        text.push_str(&format!("  machine: {}\n", wrapped(&self.machine.to_string())));
        text.push_str(&format!("  run: {}\n", wrapped(&self.run.to_string())));
        if self.run.is_loaded(self.machine.processors()) {
            text.push_str("  Other programs ran on this machine: times and rates are worse than on an idle one.\n");
        }
        if self.quick {
            text.push_str("  This was the short form (--quick): its numbers are worth less.\n");
        }
        for Failed { name, why } in &self.failed {
            text.push_str(&format!("\n{name} could not be measured: {why}\n"));
        }
        text
    }
}

/// Lines with aligned columns.
pub(crate) fn table<const COLUMNS: usize>(lines: &[[String; COLUMNS]]) -> String {
    let mut widths = [0; COLUMNS];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for line in lines {
        let cells: Vec<String> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Wraps a text, with indented continuation lines.
fn wrapped(text: &str) -> String {
    const WIDTH: usize = 110;
    let mut out = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        if width + word.chars().count() >= WIDTH {
            out.push_str("\n     ");
            width = 0;
        }
        if width > 0 || !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
        width += word.chars().count() + 1;
    }
    out
}

/// Prints JSON for another program.
pub(crate) fn answer(value: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(value)?);
    Ok(())
}

/// Prints progress to standard error.
pub(crate) fn progress(text: impl Display) {
    eprintln!("muster-bench: {text}");
}

pub(crate) fn complain(error: &anyhow::Error) {
    eprintln!("muster-bench: {error:#}");
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::row::Unit;

    #[test]
    fn run_is_read_as_it_was_written() {
        let rows = vec![
            BenchRow::new("status", Unit::Seconds, 0.012).under(0.05).detail("median of 50"),
            BenchRow::new("memory", Unit::Bytes, 1e6).grows("memory", 1_000),
            BenchRow::not_measured("fan-out", Unit::Seconds, "too few files"),
        ];
        let report = BenchReport::example(&[("status", rows)]);
        let text = serde_json::to_string(&JsonOutput { report: &report, comparison: None }).unwrap();
        assert_eq!(BenchReport::parse(&text).unwrap(), report);
    }

    #[test]
    fn kept_run_of_the_book_is_readable() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/benchmarks/before.json");
        let kept = BenchReport::read(&path).unwrap();
        let names: Vec<&str> = Name::value_variants().iter().map(|name| name.word()).collect();
        for Measured { name, .. } in &kept.measured {
            assert!(names.contains(&name.as_str()), "{name}");
        }
        assert!(kept.rows().count() > 80);
    }

    #[test]
    fn other_schema_version_is_refused() {
        let refused = |text: &str| format!("{:#}", BenchReport::parse(text).unwrap_err());
        assert_eq!(
            refused(r#"{"schema": 9, "rows": []}"#),
            "it has schema version 9, and this program reads version 1: run the benchmarks of that commit again"
        );
        assert!(refused(r#"{"machine": {}}"#).starts_with("it has no schema version"));
    }

    #[test]
    fn unreadable_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kept.json");
        let refused = || format!("{:#}", BenchReport::read(&path).unwrap_err());
        assert!(refused().starts_with(&format!("cannot read {}", path.display())), "{}", refused());
        std::fs::write(&path, "MEASURE  TARGET\n").unwrap();
        let said = format!("cannot use {}: it is not the JSON of a run (-o json)", path.display());
        assert!(refused().starts_with(&said), "{}", refused());
    }
}
