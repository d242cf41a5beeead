//! `muster design check` on a generated site, and edits of one of its nodes.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_design::file_text::FileText;
use muster_design::source::DesignSource;
use muster_design::{CompileOptions, Design, SourceFileChange};
use muster_wire::client::WriteOptions;
use muster_wire::design::{ApplyDesign, DesignInput, DocumentText, SourceBundle as SentReports, SourceFile};
use saphyr_parser::{Event, Parser};

use crate::bench::Bench;
use crate::parts::process::ResourceUsage;
use crate::parts::server::{InProcessServer, client};
use crate::parts::site::{BenchSite, SiteFiles};
use crate::parts::{process, project, site};
use crate::row::{BenchRow, Sample, Unit};

pub(crate) const DESIGN_CHECK_METHOD: &str = "a generated site: six networks, four levels of host profiles, and 460 bytes of YAML for each node; one file for \
    each rack of 100. The real `muster design check DIR`, from before its process is created until it has ended, \
    with its peak resident set. The files are in the page cache. The YAML alone: the parser's events of the same \
    files, counted and discarded, on one processor; right before and after, so that the ratio is valid on a slow \
    machine too.";

const MIB: f64 = 1024.0 * 1024.0;

pub(crate) async fn measure_design_check(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let dir = bench.dir()?;
    let (nodes, many) = bench.size((5_000, 50_000), (500, 5_000));
    let repeat = bench.size(20, 5);
    let site = BenchSite::write(&dir.path().join("by-rack"), nodes, SiteFiles::ByRack)?;
    let one = BenchSite::write(&dir.path().join("one"), nodes, SiteFiles::One)?;
    let large = BenchSite::write(&dir.path().join("large"), many, SiteFiles::ByRack)?;

    let mut events = events(&site.dir, repeat)?;
    let checked = check(bench, &site, repeat).await?;
    events.extend(self::events(&site.dir, repeat)?);
    let of_one = check(bench, &one, repeat).await?;
    let of_large = check(bench, &large, bench.size(5, 2)).await?;

    let alone = Sample::new(events);
    let name = |what: &str| format!("design of {nodes} nodes: {what}");
    let size = format!("{} of YAML in {} files", Unit::Bytes.show(bytes(site.bytes)), site.files);
    let growth = of_large.time.median() / checked.time.median();
    Ok(vec![
        BenchRow::new(name("check, whole command"), Unit::Seconds, checked.time.median())
            .at_most(0.200)
            .detail(format!("{}; {size}", checked.time.spread())),
        BenchRow::new(name("check, processor time"), Unit::Seconds, checked.processor.median())
            .detail(checked.processor.spread()),
        BenchRow::new(name("check, peak memory"), Unit::Bytes, checked.peak).at_most(150.0 * MIB),
        BenchRow::new(name("the YAML's events alone"), Unit::Seconds, alone.median()).detail(alone.spread()),
        BenchRow::new(name("check to events alone"), Unit::Ratio, checked.time.median() / alone.median()).at_most(1.8),
        BenchRow::new(name("check, all in one file"), Unit::Seconds, of_one.time.median())
            .at_most(0.200)
            .detail(format!("{}; {} at most", of_one.time.spread(), Unit::Bytes.show(of_one.peak))),
        BenchRow::new(format!("design of {many} nodes: check, whole command"), Unit::Seconds, of_large.time.median())
            .detail(of_large.time.spread()),
        BenchRow::new(format!("design of {many} nodes: check, peak memory"), Unit::Bytes, of_large.peak)
            .at_most(450.0 * MIB),
        BenchRow::new(format!("design of {many} nodes to one of {nodes}"), Unit::Ratio, growth).at_most(10.2),
    ])
}

struct Checked {
    time: Sample,
    processor: Sample,
    peak: f64,
}

async fn check(bench: &Bench, site: &BenchSite, repeat: usize) -> anyhow::Result<Checked> {
    let words = [bench.muster()?.into(), "design".into(), "check".into(), site.dir.clone().into_os_string()];
    // The first one loads program and files into the cache.
    process::run_measured(bench, &site.dir, &words).await?;
    let mut all: Vec<ResourceUsage> = Vec::new();
    for _ in 0..repeat {
        all.push(process::run_measured(bench, &site.dir, &words).await?);
    }
    let sample =
        |of: fn(&ResourceUsage) -> f64| Sample::new(all.iter().map(|taken| Duration::from_secs_f64(of(taken))));
    let peak = all.iter().map(|taken| taken.peak).fold(0.0, f64::max);
    Ok(Checked { time: sample(|taken| taken.seconds), processor: sample(|taken| taken.processor), peak })
}

/// Time of the parser for the events alone.
fn events(dir: &Path, repeat: usize) -> anyhow::Result<Vec<Duration>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        texts.push(fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?);
    }
    let mut times = Vec::new();
    for _ in 0..repeat {
        let begin = Instant::now();
        let mut count = 0_usize;
        for text in &texts {
            let mut parser = Parser::new_from_str(text);
            while let Some(next) = parser.next_event() {
                count += 1;
                if matches!(next?.0, Event::StreamEnd) {
                    break;
                }
            }
        }
        times.push(begin.elapsed());
        anyhow::ensure!(count > texts.len(), "there are no events");
    }
    Ok(times)
}

fn bytes(number: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "shown in three digits")]
    let number = number as f64;
    number
}

pub(crate) const DESIGN_EDIT_METHOD: &str = "the generated site of design-check, compiled in this process. An edit is a new text of one file, up to the new \
    design with all findings; the old design is not changed. A file of its own: one document overlays the node, as a \
    document written through the API does. In its rack's file: 100 nodes are parsed again. Through the API: a PUT to \
    a server in this process on an embedded store, until the response, when the revision and its files are on disk.";

/// The source that holds what was written through the API.
const API: &str = "api";

pub(crate) async fn measure_design_edit(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let nodes = bench.size(5_000, 500);
    let repeat = bench.size(200, 20);
    let texts = site::texts(nodes, SiteFiles::ByRack);
    let files = texts.iter().map(|(name, text)| FileText::new(name, text.as_str())).collect();
    let bundles = vec![
        DesignSource { name: "site".to_owned(), files },
        DesignSource { name: API.to_owned(), files: vec![overlay("unit-0")] },
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
        BenchRow::new(name("in a file of its own"), Unit::Seconds, alone.median()).under(0.010).detail(alone.spread()),
        BenchRow::new(name("in its rack's file"), Unit::Seconds, in_rack.median()).detail(in_rack.spread()),
        BenchRow::new(name("through the API"), Unit::Seconds, through_api.median())
            .under(0.010)
            .detail(through_api.spread()),
    ])
}

/// Edits a node of a server's design through its API.
async fn put(bench: &Bench, texts: &[(String, String)], repeat: u32) -> anyhow::Result<Sample> {
    let dir = bench.dir()?;
    let project = project::BenchProject::write(dir.path(), &[("web", 1)], &["v1"], "#!/bin/sh\nexit 0\n")?;
    let inside = InProcessServer::start(dir.path(), &project).await?;
    let (client, env) = (client(&inside.address)?, project::env()?);
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
    // The first one creates the source that it is written to.
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
        let change = SourceFileChange::Put(file(number));
        let begin = Instant::now();
        let checked = design.with(source, vec![change]);
        times.push(begin.elapsed());
        anyhow::ensure!(checked.findings.is_empty(), "the edit has findings:\n{}", checked.findings);
        design = checked.design;
    }
    Ok(Sample::new(times))
}
