//! Edits one node of a large design.

use std::time::{Duration, Instant};

use muster_design::bundle::Bundle;
use muster_design::file_text::FileText;
use muster_design::{CompileOptions, Design, FileChange};
use muster_wire::client::{Client, WriteOptions};
use muster_wire::design::{ApplyDesign, DesignInput, DocumentText, SourceBundle as SentReports, SourceFile};

use crate::bench::Bench;
use crate::parts::in_process_server::InProcessServer;
use crate::parts::project;
use crate::parts::site::{self, Files};
use crate::row::{Row, Unit};
use crate::sample::Sample;

pub(crate) const HOW: &str = "the generated site of design-check, compiled in this process. An edit is a new text of one file, up to the new \
    design with all findings; the old design is not changed. A file of its own: one document overlays the node, as a \
    document written through the API does. In its rack's file: 100 nodes are parsed again. Through the API: a PUT to \
    a server in this process on an embedded store, until the response, when the revision and its files are on disk.";

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
    let checked = Design::compile(bundles, &CompileOptions::default());
    anyhow::ensure!(checked.findings.is_empty(), "the site has findings:\n{}", checked.findings);

    let alone = edit(&checked.design, API, repeat, |number| overlay(&format!("unit-{number}")))?;
    let (name, text) = &texts[1];
    let in_rack = edit(&checked.design, "site", repeat, |number| {
        FileText::new(name, text.replacen("tags: [unit-01]", &format!("tags: [edit-{number}]"), 1))
    })?;
    let through_api = put(bench, &texts, bench.size(50, 5)).await?;
    let name = |what: &str| format!("design of {nodes} nodes: one edited, {what}");
    Ok(vec![
        Row::new(name("in a file of its own"), Unit::Seconds, alone.median()).under(0.010).detail(alone.spread()),
        Row::new(name("in its rack's file"), Unit::Seconds, in_rack.median()).detail(in_rack.spread()),
        Row::new(name("through the API"), Unit::Seconds, through_api.median())
            .under(0.010)
            .detail(through_api.spread()),
    ])
}

/// Edits a node of a server's design through its API.
async fn put(bench: &Bench, texts: &[(String, String)], repeat: u32) -> anyhow::Result<Sample> {
    let dir = bench.dir()?;
    let project = project::Project::write(dir.path(), &[("web", 1)], &["v1"], "#!/bin/sh\nexit 0\n")?;
    let inside = InProcessServer::start(dir.path(), &project).await?;
    let (client, env) = (Client::new(&format!("http://{}", inside.address))?, project::env()?);
    let files = texts.iter().map(|(path, text)| SourceFile { path: path.clone(), text: text.clone() }).collect();
    let design =
        DesignInput { bundles: vec![SentReports { name: "site".to_owned(), files }], ..DesignInput::default() };
    client.apply_design(&env, &ApplyDesign { design, ..ApplyDesign::default() }).await?;
    let mut times: Vec<Duration> = Vec::new();
    for number in 0..=repeat {
        let document = DocumentText::Yaml(overlay(&format!("unit-{number}")).text().to_owned());
        let begin = Instant::now();
        client.put_document(&env, "Node", "compute7", &document, &WriteOptions::default()).await?;
        times.push(begin.elapsed());
    }
    // The first one brings the source that it is written to.
    Ok(Sample::new(times.into_iter().skip(1)))
}

/// A document that overlays one of the site's nodes.
fn overlay(tag: &str) -> FileText {
    let text = format!("kind: Node\nname: compute7\noverlay: true\nspec: {{tags: [{tag}]}}\n");
    FileText::new("Node/compute7.yaml", text)
}

/// Edits a design repeatedly, each time based on the last result.
fn edit(design: &Design, source: &str, repeat: u32, file: impl Fn(u32) -> FileText) -> anyhow::Result<Sample> {
    let mut design = design.clone();
    let mut times: Vec<Duration> = Vec::new();
    for number in 1..=repeat {
        let change = FileChange::Put(file(number));
        let begin = Instant::now();
        let checked = design.with(source, vec![change]);
        times.push(begin.elapsed());
        anyhow::ensure!(checked.findings.is_empty(), "the edit has findings:\n{}", checked.findings);
        design = checked.design;
    }
    Ok(Sample::new(times))
}
