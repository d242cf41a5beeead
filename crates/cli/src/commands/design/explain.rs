//! `muster design explain`: explains a finding by its code.

use muster_core::spelling;
use muster_design::finding::{Code, Severity, example};
use serde::Serialize;

use crate::failure::{Exit, Failure};
use crate::output::{Table, Terminal};

/// Explain a finding by its code, with an example; without a code, list all findings
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   success
  1   the code does not exist

Examples:
  muster design explain M0103
  muster design explain
  muster design explain -o json | jq -r '.items[].code'")]
pub struct Args {
    /// Code of the finding, such as M0103
    code: Option<String>,
}

#[derive(Debug, Serialize)]
struct Explanation {
    code: Code,
    severity: Severity,
    meaning: &'static str,
    /// Markdown.
    explanation: &'static str,
    /// Markdown: a file with the finding, and one without.
    example: Option<&'static str>,
}

impl Explanation {
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
        let all: Vec<Explanation> = Code::ALL.iter().copied().map(Explanation::new).collect();
        terminal.out.answer(&all, |out| {
            let mut table = Table::new(["CODE", "SEVERITY", "MEANING"]).color_column(1);
            for Explanation { code, severity, meaning, .. } in &all {
                table.row([code.to_string(), severity.to_string(), (*meaning).to_owned()]);
            }
            out.table(table);
        });
        return Ok(Exit::Yes);
    };
    let code = Code::parse(&text.trim().to_uppercase()).ok_or_else(|| unknown(text))?;
    let explained = Explanation::new(code);
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
        Some(code) => failure.hint(format!("did you mean {code}? `muster design explain` lists all codes")),
        None => failure.hint("`muster design explain` lists all codes"),
    }
}
