//! Prints the table, the methods and the machine.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the one place of this program that prints")]

use std::fmt::Display;

use serde::Serialize;

use crate::args::{Name, TableFormat};
use crate::bench::Bench;
use crate::measures;
use crate::parts::machine::MachineInfo;
use crate::row::BenchRow;

/// All results.
#[derive(Debug, Serialize)]
pub(crate) struct BenchReport {
    machine: MachineInfo,
    /// True if the benchmarks were run with --quick.
    quick: bool,
    measured: Vec<Measured>,
    pub(crate) failed: Vec<Failed>,
}

#[derive(Debug, Serialize)]
struct Measured {
    name: &'static str,
    rows: Vec<BenchRow>,
    how: &'static str,
}

#[derive(Debug, Serialize)]
pub(crate) struct Failed {
    name: &'static str,
    why: String,
}

impl BenchReport {
    pub(crate) fn new(bench: &Bench, quick: bool) -> anyhow::Result<Self> {
        let machine = MachineInfo::read(bench.scratch())?;
        Ok(Self { machine, quick, measured: Vec::new(), failed: Vec::new() })
    }

    pub(crate) fn add(&mut self, name: Name, rows: Vec<BenchRow>) {
        self.measured.push(Measured { name: name.word(), rows, how: measures::method(name) });
    }

    pub(crate) fn fail(&mut self, name: Name, why: &anyhow::Error) {
        progress(format_args!("{}: {why:#}", name.word()));
        self.failed.push(Failed { name: name.word(), why: format!("{why:#}") });
    }

    pub(crate) fn print(&self, format: TableFormat) {
        match format {
            TableFormat::Table => print!("{}", self.text()),
            TableFormat::Json => match serde_json::to_string_pretty(self) {
                Ok(text) => println!("{text}"),
                Err(error) => complain(&error.into()),
            },
        }
    }

    fn text(&self) -> String {
        let mut lines = vec![["MEASURE", "TARGET", "MEASURED", "VERDICT"].map(str::to_owned)];
        for row in self.measured.iter().flat_map(|measured| &measured.rows) {
            lines.push([row.measure.clone(), row.target_text(), row.value_text(), row.verdict_text().to_owned()]);
        }
        let mut widths = [0; 3];
        for line in &lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let [a, b, c] = widths;
        let table = lines.iter().map(|[measure, target, measured, verdict]| {
            format!("{measure:a$}  {target:b$}  {measured:c$}  {verdict}").trim_end().to_owned() + "\n"
        });
        let mut text: String = table.collect();
        text.push_str("\nHow it was measured\n");
        for Measured { name, how, .. } in &self.measured {
            text.push_str(&format!("  {name}: {}\n", wrapped(how)));
        }
        text.push_str(&format!("  machine: {}\n", wrapped(&self.machine.to_string())));
        if self.quick {
            text.push_str("  This was the short form (--quick): its numbers are worth less.\n");
        }
        for Failed { name, why } in &self.failed {
            text.push_str(&format!("\n{name} could not be measured: {why}\n"));
        }
        text
    }
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
