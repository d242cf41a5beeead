//! A control repository with real modules: its build, its push, and a second release of it on a node.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_release::manifest::ReleaseLabel;
use muster_release::tree::ReleaseTree;
use muster_release::{bundle, manifest};

use crate::bench::Bench;
use crate::parts::fleet::{BenchFleet, FleetOptions};
use crate::parts::machine::now;
use crate::parts::process::{self, run_measured};
use crate::parts::project;
use crate::row::{BenchRow, Sample, Unit, bytes};

pub(crate) const METHOD: &str = "all Puppet modules that Debian packages, which `make bench` unpacks into .tools, in a release with the script applier. \
    Build and push are whole commands of the real `muster`, without validation, the push to a real server; unpacking \
    is the agent's function, in this process. A real agent has validated the release, and gets a second one of which \
    one file differs: the bytes of the server pass through a proxy, and a file that was written has one link. Medians.";

/// Directory of the modules, relative to the repository.
const MODULES: &str = ".tools/bench-modules";
/// The file that differs between the releases.
const CHANGED: &str = "data.yaml";
/// Remains of a run in the agent (timers, idle threads) are gone after this time.
const SETTLE: Duration = Duration::from_secs(2);

pub(crate) async fn measure(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(MODULES);
    let modules = modules.canonicalize().context("the Puppet modules are missing: run `scripts/setup bench`")?;
    let roles = [("app", 1)];
    let fleet =
        BenchFleet::start_as(bench, &FleetOptions { modules: Some((&modules, CHANGED)), ..FleetOptions::new(&roles) })
            .await?;
    fleet.until_validated("v1").await?;
    tokio::time::sleep(SETTLE).await;
    let memory = process::read_memory(fleet.agent("app1")?.pid())?;
    let mut rows = update(&fleet).await?;
    let release = fleet.project.dir.join("releases/v2");
    rows.extend(commands(bench, &fleet, &release).await?);
    rows.push(unpack(bench, &release)?);
    fleet.stop().await?;
    rows.push(
        BenchRow::new("control repository: idle agent, resident", Unit::Bytes, bytes(memory.rss))
            .at_most(12.0 * 1024.0 * 1024.0)
            .detail(format!("PSS {}", Unit::Bytes.show(bytes(memory.pss)))),
    );
    Ok(rows)
}

/// The second release reaches the node.
async fn update(fleet: &BenchFleet) -> anyhow::Result<Vec<BenchRow>> {
    let (before, begin) = (fleet.proxy.traffic().down, Instant::now());
    fleet.client.trigger_at_once(&project::env()?, project::version("v2")?).await?;
    fleet.until_validated("v2").await?;
    let (took, down) = (begin.elapsed(), fleet.proxy.traffic().down.saturating_sub(before));
    let tree = ReleaseTree::read(&fleet.project.dir.join("releases/v2"))?;
    let cache = fleet.agent("app1")?.state().join("releases");
    let mut written = Vec::new();
    let mut files = 0;
    for release in fs::read_dir(&cache).with_context(|| format!("cannot read {}", cache.display()))? {
        let release = release?.path();
        for (path, _) in tree.files() {
            let file = release.join(path);
            files += 1;
            if fs::metadata(&file).with_context(|| format!("cannot read {}", file.display()))?.nlink() == 1 {
                written.push(path.to_owned());
            }
        }
    }
    let expected = 2 * tree.files().len();
    anyhow::ensure!(files == expected, "the node has {files} files of two releases instead of {expected}");
    let unchanged = written.iter().filter(|path| *path != CHANGED).count();
    let size = format!("{} files, {}", tree.files().len(), Unit::Bytes.show(bytes(tree.size())));
    Ok(vec![
        BenchRow::new(
            "control repository: unchanged files written again",
            Unit::Count,
            f64::from(u32::try_from(unchanged)?),
        )
        .zero()
        .detail(size),
        BenchRow::new("… bytes that the server sends for one changed file", Unit::Bytes, bytes(down)),
        BenchRow::new("… from the command to the validated second release", Unit::Seconds, took.as_secs_f64()),
    ])
}

/// `muster release build` and `muster release push` of a changed release.
async fn commands(bench: &Bench, fleet: &BenchFleet, release: &Path) -> anyhow::Result<Vec<BenchRow>> {
    let (mut builds, mut pushes) = (Vec::new(), Vec::new());
    let key = project::release_key(&fleet.project.dir);
    for number in 3..bench.size(8_u64, 4) {
        fs::write(release.join(CHANGED), format!("number: {number}\n"))?;
        let (dir, version) = (bench.dir()?, format!("v{number}"));
        let text = |path: &Path| path.display().to_string();
        let muster = |words: &[&str]| {
            let program = bench.muster().map(|path| path.as_os_str().to_owned())?;
            anyhow::Ok(std::iter::once(program).chain(words.iter().map(Into::into)).collect::<Vec<_>>())
        };
        let (source, key, out) = (text(release), text(&key), text(dir.path()));
        // The default is the time in seconds, and two builds may be in one second.
        let serial = (now().as_secs() + number).to_string();
        let build = muster(&[
            "release",
            "build",
            &source,
            "--version",
            &version,
            "--sign",
            &key,
            "--out",
            &out,
            "--no-validate",
            "--serial",
            &serial,
        ])?;
        builds.push(run_measured(bench, dir.path(), &build).await?.seconds);
        let manifest = text(&dir.path().join(format!("{version}.release.json")));
        let push = muster(&["--server", &fleet.server.url, "--env", project::ENV, "release", "push", &manifest])?;
        pushes.push(run_measured(bench, dir.path(), &push).await?.seconds);
    }
    let row = |what: &str, seconds: Vec<f64>, limit| {
        let sample = Sample::new(seconds.into_iter().map(Duration::from_secs_f64));
        BenchRow::new(format!("control repository: {what}"), Unit::Seconds, sample.median())
            .under(limit)
            .detail(sample.spread())
    };
    Ok(vec![row("build, without validation", builds, 1.0), row("push", pushes, 2.0)])
}

fn unpack(bench: &Bench, release: &Path) -> anyhow::Result<BenchRow> {
    let dir = bench.dir()?;
    let (path, info) = bundle::pack_into(&ReleaseTree::read(release)?, dir.path())?;
    let label = ReleaseLabel {
        version: project::version("v1")?,
        env: muster_core::release::manifest::ReleaseEnv::Any,
        serial: 1,
        created: jiff::Timestamp::UNIX_EPOCH,
        expires: None,
        previous: None,
    };
    let manifest = manifest::create(label, &info);
    let mut times = Vec::new();
    for number in 0..bench.size(7, 2) {
        let target: PathBuf = dir.path().join(format!("unpacked-{number}"));
        let begin = Instant::now();
        muster_release::unpack(&path, &manifest, &target)?;
        times.push(begin.elapsed());
    }
    let sample = Sample::new(times);
    Ok(BenchRow::new("control repository: unpacking, with both digests", Unit::Seconds, sample.median())
        .under(1.0)
        .detail(format!("{}; the bundle has {}", sample.spread(), Unit::Bytes.show(bytes(info.size)))))
}
