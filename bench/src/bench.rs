//! Settings of all benchmarks: programs, work directory, and the mark of their processes.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;

use crate::args::BenchArgs;
use crate::report;

/// The environment variable that marks every process of a benchmark.
pub(crate) const MARK: &str = "MUSTER_BENCH";
/// Token of all servers of a benchmark.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const TOKEN_FILE: &str = "token";
/// Time that a process has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(crate) struct Bench(Arc<BenchSettings>);

#[derive(Debug)]
struct BenchSettings {
    muster: PathBuf,
    agent: PathBuf,
    scratch: TempDir,
    quick: bool,
}

impl Bench {
    pub(crate) fn new(args: &BenchArgs) -> anyhow::Result<Self> {
        let programs = match &args.programs {
            Some(dir) => dir.clone(),
            None => {
                let own = std::env::current_exe().context("cannot find the path of this program")?;
                own.parent().map(Path::to_owned).unwrap_or_default()
            }
        };
        let programs = programs.canonicalize().with_context(|| format!("cannot use {}", programs.display()))?;
        let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
        let scratch = tempfile::Builder::new().prefix("muster-bench-").tempdir_in(&dir);
        let scratch = scratch.with_context(|| format!("cannot work in {}", dir.display()))?;
        let token = scratch.path().join(TOKEN_FILE);
        std::fs::write(&token, TOKEN)?;
        std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self(Arc::new(BenchSettings {
            muster: programs.join("muster"),
            agent: programs.join("muster-agent"),
            scratch,
            quick: args.quick,
        })))
    }

    /// The operator's tool, with its server.
    pub(crate) fn muster(&self) -> anyhow::Result<&Path> {
        program(&self.0.muster)
    }

    pub(crate) fn agent(&self) -> anyhow::Result<&Path> {
        program(&self.0.agent)
    }

    /// A new directory, removed when the result is dropped.
    pub(crate) fn dir(&self) -> anyhow::Result<TempDir> {
        tempfile::tempdir_in(self.scratch()).context("cannot make a directory to work in")
    }

    pub(crate) fn scratch(&self) -> &Path {
        self.0.scratch.path()
    }

    /// File with [`TOKEN`].
    pub(crate) fn token_file(&self) -> PathBuf {
        self.scratch().join(TOKEN_FILE)
    }

    /// The value of the mark: no other benchmark at the same time has it.
    pub(crate) fn mark(&self) -> &std::ffi::OsStr {
        self.scratch().as_os_str()
    }

    /// The full size of something, or the small one with `--quick`.
    pub(crate) fn size<T>(&self, full: T, quick: T) -> T {
        if self.0.quick { quick } else { full }
    }

    /// Ends all processes that were started.
    pub(crate) async fn end_processes(&self) {
        match muster_marked::terminate_all(MARK, self.mark(), GRACE).await {
            Ok(ended) if ended.is_complete() => {}
            Ok(ended) => report::progress(format_args!("these processes could not be ended: {:?}", ended.remaining)),
            Err(error) => report::progress(format_args!("processes could not be ended: {error}")),
        }
    }
}

fn program(path: &Path) -> anyhow::Result<&Path> {
    let hint =
        "build it with `cargo build --release -p muster-cli -p muster-agent`, or name its directory with --programs";
    anyhow::ensure!(path.is_file(), "{} is not there: {hint}", path.display());
    Ok(path)
}
