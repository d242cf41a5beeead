//! One node of a large design is edited.

use std::time::{Duration, Instant};

use muster_design::bundle::Bundle;
use muster_design::file_text::FileText;
use muster_design::{Change, Design, Options};

use crate::bench::Bench;
use crate::parts::site::{self, Files};
use crate::row::{Row, Unit};
use crate::sample::Sample;

pub(crate) const HOW: &str = "the generated site of design-check, compiled in this process. An edit is a new text of one \
    file, up to the new design with all its findings; the old one stays as it is. A file of its own: the node is \
    overlaid by one document, as one that was written through the API is. In its rack's file: 100 nodes are read anew.";

/// The source that holds what was written through the API.
const API: &str = "api";

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let nodes = bench.size(5_000, 500);
    let repeat = bench.size(200, 20);
    let texts = site::texts(nodes, Files::ByRack);
    let files = texts.iter().map(|(name, text)| FileText::new(name, text.as_str())).collect();
    let bundles = vec![
        Bundle { name: "site".to_owned(), files },
        Bundle { name: API.to_owned(), files: vec![overlay("unit-0")] },
    ];
    let checked = Design::compile(bundles, &Options::default());
    anyhow::ensure!(checked.findings.is_empty(), "the site has findings:\n{}", checked.findings);

    let alone = edit(&checked.design, API, repeat, |number| overlay(&format!("unit-{number}")))?;
    let (name, text) = &texts[1];
    let in_rack = edit(&checked.design, "site", repeat, |number| {
        FileText::new(name, text.replacen("tags: [unit-01]", &format!("tags: [edit-{number}]"), 1))
    })?;
    let name = |what: &str| format!("design of {nodes} nodes: one edited, {what}");
    Ok(vec![
        Row::new(name("in a file of its own"), Unit::Seconds, alone.median()).under(0.010).detail(alone.spread()),
        Row::new(name("in its rack's file"), Unit::Seconds, in_rack.median()).detail(in_rack.spread()),
    ])
}

/// A document that is laid over one of the site's nodes.
fn overlay(tag: &str) -> FileText {
    let text = format!("kind: Node\nname: compute7\noverlay: true\nspec: {{tags: [{tag}]}}\n");
    FileText::new("Node/compute7.yaml", text)
}

/// Edits a design again and again, each time what the last edit has made of it.
fn edit(design: &Design, source: &str, repeat: u32, file: impl Fn(u32) -> FileText) -> anyhow::Result<Sample> {
    let mut design = design.clone();
    let mut times: Vec<Duration> = Vec::new();
    for number in 1..=repeat {
        let change = Change::Put(file(number));
        let begin = Instant::now();
        let checked = design.with(source, vec![change]);
        times.push(begin.elapsed());
        anyhow::ensure!(checked.findings.is_empty(), "the edit has findings:\n{}", checked.findings);
        design = checked.design;
    }
    Ok(Sample::new(times))
}
