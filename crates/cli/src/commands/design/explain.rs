//! `muster design explain`: what a finding means, and what to do about it.

use muster_core::spelling;
use muster_design::finding::{Code, Severity, example};
use serde::Serialize;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::{Table, Terminal};

/// Explain a finding by its code: what it means, why it matters, an example; without a code, list all of them
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   it was explained
  1   there is no such code

Examples:
  muster design explain M0103
  muster design explain
  muster design explain -o json | jq -r '.[].code'")]
pub struct Args {
    /// The code, such as M0103
    code: Option<String>,
}

#[derive(Debug, Serialize)]
struct Explained {
    code: Code,
    severity: Severity,
    meaning: &'static str,
    /// Markdown.
    explanation: &'static str,
    /// Markdown: a file that triggers it, and one that does not.
    example: Option<&'static str>,
}

impl Explained {
    fn new(code: Code) -> Self {
        Self {
            code,
            severity: code.severity(),
            meaning: code.meaning(),
            explanation: code.explanation(),
            example: example(code),
        }
    }
}

pub(in crate::commands) fn run(args: &Args, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let Some(text) = &args.code else {
        let all: Vec<Explained> = Code::ALL.iter().copied().map(Explained::new).collect();
        terminal.out.answer(&all, |out| {
            let mut table = Table::new(["CODE", "SEVERITY", "MEANING"]).painted(1);
            for Explained { code, severity, meaning, .. } in &all {
                table.row([code.to_string(), severity.to_string(), (*meaning).to_owned()]);
            }
            out.table(table);
        });
        return Ok(Exit::Yes);
    };
    let code = Code::parse(&text.trim().to_uppercase()).ok_or_else(|| unknown(text))?;
    let explained = Explained::new(code);
    terminal.out.answer(&explained, |out| {
        out.line(format_args!("{code} ({}): {}", explained.severity, explained.meaning));
        out.gap();
        out.line(explained.explanation.trim_end());
        if let Some(example) = explained.example {
            out.gap();
            out.line(example);
        }
    });
    Ok(Exit::Yes)
}

fn unknown(text: &str) -> Failure {
    let failure = Failure::failed(anyhow::anyhow!("there is no finding {text:?}"));
    let codes = Code::ALL.iter().map(|code| code.as_str());
    match spelling::nearest(text, codes) {
        Some(code) => failure.hint(format!("did you mean {code}? `muster design explain` lists all of them")),
        None => failure.hint("`muster design explain` lists all of them"),
    }
}
