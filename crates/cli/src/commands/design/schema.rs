//! `muster design schema`: prints the JSON Schemas of documents, for editors.

use std::path::{Path, PathBuf};

use anyhow::Context;
use muster_core::spelling;
use muster_design::kinds::Kind;
use muster_design::types::json_schema;
use serde_json::{Value, json};

use crate::args::{Globals, OutputFormat};
use crate::failure::{Exit, Failure};
use crate::output::Terminal;

/// Print the JSON Schema of a kind of document, for editors; without a kind, list the kinds
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
With --all one file per kind is written, and one for files of any kinds. An editor with the YAML language server checks and \
completes a file that has such a first line:

  # yaml-language-server: $schema=schemas/design.schema.json

Exit codes:
  0   success
  1   the kind does not exist, or a file cannot be written

Examples:
  muster design schema
  muster design schema Network > network.schema.json
  muster design schema --all schemas")]
pub struct Args {
    /// Kind of document, such as Network
    #[arg(conflicts_with = "all")]
    kind: Option<String>,
    /// Write the schemas of all kinds into this directory
    #[arg(long, value_name = "DIR")]
    all: Option<PathBuf>,
}

/// Name of the schema for files of any kinds.
const ANY: &str = "design";

pub(in crate::commands) fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    if let Some(dir) = &args.all {
        return write_all(dir, terminal);
    }
    let Some(name) = &args.kind else {
        let kinds: Vec<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
        terminal.out.answer(&kinds, |out| kinds.iter().for_each(|kind| out.line(kind)));
        return Ok(Exit::Yes);
    };
    let kind = Kind::parse(name).ok_or_else(|| unknown(name))?;
    // Schemas are JSON, also for people.
    let format = if globals.output == OutputFormat::Table { OutputFormat::Json } else { globals.output };
    terminal.out.document(format, &json_schema(kind));
    Ok(Exit::Yes)
}

fn unknown(name: &str) -> Failure {
    let kinds: Vec<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
    let failure = Failure::failed(anyhow::anyhow!("there is no kind {name:?}"));
    match spelling::nearest(name, kinds.iter().copied()) {
        Some(kind) => failure.hint(format!("did you mean {kind}?")),
        None => failure.hint(format!("kinds are {}", kinds.join(", "))),
    }
}

fn write_all(dir: &Path, terminal: &mut Terminal) -> Result<Exit, Failure> {
    std::fs::create_dir_all(dir)
        .with_context(|| format!("cannot create {}", dir.display()))
        .map_err(Failure::failed)?;
    let mut files = Vec::new();
    for kind in Kind::ALL {
        files.push(write(dir, kind.word(), &json_schema(*kind))?);
    }
    let references: Vec<Value> = Kind::ALL.iter().map(|kind| json!({ "$ref": file_name(kind.word()) })).collect();
    let any = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A document of a design",
        "anyOf": references,
    });
    files.push(write(dir, ANY, &any)?);
    terminal.out.answer(&files, |out| files.iter().for_each(|file| out.line(file)));
    terminal.notes.note(format_args!(
        "editors with the YAML language server use a schema for a file that starts with\n      # yaml-language-server: $schema={}",
        dir.join(file_name(ANY)).display()
    ));
    Ok(Exit::Yes)
}

fn write(dir: &Path, name: &str, schema: &Value) -> Result<String, Failure> {
    let path = dir.join(file_name(name));
    let written = serde_json::to_string_pretty(schema).context("cannot serialize the schema").and_then(|text| {
        std::fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
    });
    written.map_err(Failure::failed)?;
    Ok(path.display().to_string())
}

fn file_name(name: &str) -> String {
    format!("{name}.schema.json")
}
