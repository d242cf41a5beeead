//! `muster design check` on a generated site.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use saphyr_parser::{Event, Parser};

use crate::bench::Bench;
use crate::parts::resource_usage::{self, ResourceUsage};
use crate::parts::site::{Files, Site};
use crate::row::{Row, Unit};
use crate::sample::Sample;

pub(crate) const HOW: &str = "a generated site: six networks, four levels of host profiles, and 460 bytes of YAML for each node; one file for \
    each rack of 100. The real `muster design check DIR`, from before its process is created until it has ended, \
    with its peak resident set. The files are in the page cache. The YAML alone: the parser's events of the same \
    files, counted and discarded, on one processor; right before and after, so that the ratio is valid on a slow \
    machine too.";

const MIB: f64 = 1024.0 * 1024.0;

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let dir = bench.dir()?;
    let (nodes, many) = bench.size((5_000, 50_000), (500, 5_000));
    let repeat = bench.size(20, 5);
    let site = Site::write(&dir.path().join("by-rack"), nodes, Files::ByRack)?;
    let one = Site::write(&dir.path().join("one"), nodes, Files::One)?;
    let large = Site::write(&dir.path().join("large"), many, Files::ByRack)?;

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
        Row::new(name("check, whole command"), Unit::Seconds, checked.time.median())
            .at_most(0.200)
            .detail(format!("{}; {size}", checked.time.spread())),
        Row::new(name("check, processor time"), Unit::Seconds, checked.processor.median())
            .detail(checked.processor.spread()),
        Row::new(name("check, peak memory"), Unit::Bytes, checked.peak).at_most(150.0 * MIB),
        Row::new(name("the YAML's events alone"), Unit::Seconds, alone.median()).detail(alone.spread()),
        // Equal to the target of 0.2 s where the events take 0.1 s.
        Row::new(name("check to events alone"), Unit::Ratio, checked.time.median() / alone.median()).at_most(2.0),
        Row::new(name("check, all in one file"), Unit::Seconds, of_one.time.median()).at_most(0.200).detail(format!(
            "{}; {} at most",
            of_one.time.spread(),
            Unit::Bytes.show(of_one.peak)
        )),
        Row::new(format!("design of {many} nodes: check, whole command"), Unit::Seconds, of_large.time.median())
            .detail(format!("{}; {} at most", of_large.time.spread(), Unit::Bytes.show(of_large.peak))),
        Row::new(format!("design of {many} nodes to one of {nodes}"), Unit::Ratio, growth).at_most(11.0),
    ])
}

struct Checked {
    time: Sample,
    processor: Sample,
    peak: f64,
}

async fn check(bench: &Bench, site: &Site, repeat: usize) -> anyhow::Result<Checked> {
    let words = [bench.muster()?.into(), "design".into(), "check".into(), site.dir.clone().into_os_string()];
    // The first one brings program and files into the cache.
    resource_usage::run(bench, &site.dir, &words).await?;
    let mut all: Vec<ResourceUsage> = Vec::new();
    for _ in 0..repeat {
        all.push(resource_usage::run(bench, &site.dir, &words).await?);
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
