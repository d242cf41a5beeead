//! Generated pages of the book about findings, and the examples of `muster design explain`, from the catalogue, the
//! explanations and `examples/findings/`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use muster_design::finding::Code;

use crate::finding_example::{Example, ROOT, example, printed};
use crate::findings::ELSEWHERE;
use crate::generated::compare;

const SUMMARY: &str = "docs/src/SUMMARY.md";

#[test]
fn the_pages_about_findings_are_the_real_ones() {
    let examples: Vec<(Code, Option<String>)> = Code::ALL.iter().map(|code| (*code, section(*code))).collect();
    let mut files = BTreeMap::new();
    for (code, section) in &examples {
        files.insert(format!("docs/src/findings/{code}.md"), page(*code, section.as_deref()));
    }
    files.insert("docs/src/findings.md".into(), index());
    files.insert("crates/design/explanations/examples.md".into(), embedded(&examples));
    files.insert(SUMMARY.into(), summary(&fs::read_to_string(Path::new(ROOT).join(SUMMARY)).unwrap()));
    compare("UPDATE_FINDINGS", &files, &["docs/src/findings"]);
}

/// `M0103: A key is not one of those that are known there`
fn title(code: Code) -> String {
    format!("{code}: {}", code.meaning().trim_end_matches('.'))
}

fn page(code: Code, section: Option<&str>) -> String {
    let none = || {
        let (_, why, _) = ELSEWHERE.iter().find(|(elsewhere, ..)| *elsewhere == code).unwrap();
        format!("No file triggers this alone: {why}.")
    };
    let section = section.map_or_else(none, str::to_owned);
    format!("# {}\n\nSeverity: {}\n\n{}\n\n{section}\n", title(code), code.severity(), code.explanation().trim())
}

fn index() -> String {
    let mut page = "\
# Findings

Everything that Muster has to say about a design has a code. A code never changes its meaning, so it can be searched for, and
scripts may go by it. With an *error* among its findings, a design is not used; a *warning* does not keep it from being used.
`muster design explain CODE` shows the page of a code on the terminal.

"
    .to_owned();
    for group in Code::ALL.chunk_by(|a, b| a.as_str()[..3] == b.as_str()[..3]) {
        let about = match &group[0].as_str()[..3] {
            "M00" => "Files and YAML",
            "M01" => "Environment files, and what all documents share",
            "M10" => "Documents and inheritance",
            "M11" => "Networks and links",
            "M12" => "Nodes, interfaces and addresses",
            "M13" => "Storage",
            "M14" => "Hardware and platform",
            "M15" => "Boot actions",
            "M16" => "Out-of-band access and drivers",
            "M17" => "Configuration items",
            "M18" => "Drydock's documents",
            "M19" => "Rollout strategies",
            other => panic!("what are the codes that begin with {other} about?"),
        };
        write!(page, "## {about}\n\n| code | severity | meaning |\n|---|---|---|\n").unwrap();
        for code in group {
            writeln!(page, "| [{code}](findings/{code}.md) | {} | {} |", code.severity(), code.meaning()).unwrap();
        }
        page.push('\n');
    }
    page.trim_end().to_owned() + "\n"
}

fn embedded(examples: &[(Code, Option<String>)]) -> String {
    let sections = examples.iter().filter_map(|(code, section)| Some((code, section.as_ref()?)));
    sections.map(|(code, section)| format!("<!-- {code} -->\n{section}\n\n")).collect()
}

/// Table of contents, with one line for each code below the line of the findings.
fn summary(there: &str) -> String {
    const HEAD: &str = "- [Findings](findings.md)";
    assert!(there.contains(HEAD), "{SUMMARY} has no line {HEAD:?}");
    let mut lines: Vec<String> = Vec::new();
    for line in there.lines().filter(|line| !line.contains("](findings/")) {
        lines.push(line.to_owned());
        if line == HEAD {
            lines.extend(Code::ALL.iter().map(|code| format!("  - [{}](findings/{code}.md)", title(*code))));
        }
    }
    lines.join("\n") + "\n"
}

/// Text below the explanation of a code.
fn section(code: Code) -> Option<String> {
    let (bad, good) = (example(code, "bad")?, example(code, "good")?);
    let mut text = String::from("## Example\n\n");
    let shown: Vec<(String, String)> = files(&bad);
    shown.iter().for_each(|(_, file)| text.push_str(file));
    let directories: Vec<String> =
        bad.sources.iter().map(|source| source.path.to_str().unwrap().replace(&format!("{ROOT}/"), "")).collect();
    let print = printed(&bad.findings());
    write!(text, "```console\n$ muster design check {}\n{}\n```\n\n", directories.join(" "), print.trim_end()).unwrap();
    text.push_str("## A near miss\n\nHere nothing is found.");
    let others: Vec<(String, String)> = files(&good).into_iter().filter(|file| !shown.contains(file)).collect();
    let all = files(&good).len();
    if others.len() < all {
        text.push_str(if all - others.len() == 1 {
            " The other file is the same."
        } else {
            " The other files are the same."
        });
    }
    text.push_str("\n\n");
    others.iter().for_each(|(_, file)| text.push_str(file));
    Some(text.trim_end().to_owned())
}

/// Files of an example by name, with the text to show.
fn files(example: &Example) -> Vec<(String, String)> {
    let show = |(name, path): (String, std::path::PathBuf)| {
        let text = if let Ok(target) = fs::read_link(&path) {
            format!("`{name}` is a symbolic link to `{}`.\n\n", target.display())
        } else if path.is_dir() {
            format!("`{name}` is a directory.\n\n")
        } else {
            let bytes = fs::read(&path).unwrap();
            let language = if name.ends_with(".yaml") { "yaml" } else { "text" };
            format!("`{name}`:\n\n```{language}\n{}\n```\n\n", shortened(&String::from_utf8_lossy(&bytes)))
        };
        (name, text)
    };
    example.files().into_iter().map(show).collect()
}

/// Shortens the text of files that are large on purpose.
fn shortened(text: &str) -> String {
    const LINES: usize = 24;
    const CHARACTERS: usize = 160;
    let cut = |line: &str| match line.char_indices().nth(CHARACTERS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    };
    let lines: Vec<String> = text.lines().map(cut).collect();
    if lines.len() <= LINES {
        return lines.join("\n");
    }
    format!("{}\n# … and {} more lines", lines[..LINES / 2].join("\n"), lines.len() - LINES / 2)
}
