//! Fetches the repositories of a release, with progress on the terminal and cancellation by Ctrl-C.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};

use muster_release::puppetfile::PUPPETFILE;
use muster_release::repos::assemble::{
    self, AssembleError, AssembledRelease, FetchProgress, FetchSettings, PARALLEL, PinUpdate,
};
use muster_release::repos::fetch::FetchOrigin;
use muster_release::repos::git::CancelHandle;
use tokio::sync::mpsc;

use crate::failure::{Exit, Failure};
use crate::output::{Notes, Terminal};
use crate::process::Signals;
use crate::variables;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct RepoArgs {
    /// Pin these repositories, or all, to their newest commits in repos.lock
    #[arg(long, value_name = "NAME", num_args = 0..)]
    update: Option<Vec<String>>,
    /// Cache directory for repositories [default: the cache directory of the user]
    #[arg(long, env = variables::CACHE, hide_env_values = true, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Number of repositories that are fetched at a time
    #[arg(long, value_name = "N", default_value_t = PARALLEL, value_parser = parallel_arg)]
    parallel: usize,
}

impl RepoArgs {
    pub(super) fn cache_dir(&self) -> PathBuf {
        variables::cache_dir(self.cache.as_deref())
    }
}

fn parallel_arg(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=64) => Ok(number),
        Ok(_) | Err(_) => Err("expected a number from 1 to 64".to_owned()),
    }
}

/// Reads the directory, and fetches the repositories of its `repos.yaml`.
pub(super) async fn assemble(
    dir: &Path,
    args: &RepoArgs,
    terminal: &mut Terminal,
) -> Result<AssembledRelease, Failure> {
    let dir = dir.to_owned();
    let fetch = move |settings: &FetchSettings<'_>, progress: &ShowProgress<'_>| {
        assemble::assemble(&dir, settings, progress).map_err(|error| failure(error, &dir))
    };
    fetch_with_progress(args, terminal, false, fetch).await
}

type ShowProgress<'a> = dyn Fn(FetchProgress) + Sync + 'a;

/// Runs a function that fetches repositories, with a progress line, until it ends or Ctrl-C cancels it.
pub(super) async fn fetch_with_progress<T: Send + 'static>(
    args: &RepoArgs,
    terminal: &mut Terminal,
    verify_tags: bool,
    fetch: impl FnOnce(&FetchSettings<'_>, &ShowProgress<'_>) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let cannot_start = |error| Failure::failed(anyhow::Error::new(error).context("cannot start"));
    let cancel = CancelHandle::new().map_err(cannot_start)?;
    let mut signals = Signals::new().map_err(cannot_start)?;
    // Small: the terminal keeps up, or fetching waits for it.
    let (events, mut received) = mpsc::channel(16);
    let (args, cancelled) = (args.clone(), cancel.clone());
    let work = tokio::task::spawn_blocking(move || {
        let update = match args.update.as_deref() {
            None => PinUpdate::None,
            Some([]) => PinUpdate::All,
            Some(names) => PinUpdate::These(names.iter().cloned().collect::<BTreeSet<_>>()),
        };
        let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let (mirror, forge) = (variable(variables::GIT_MIRROR), variable(variables::FORGE));
        let settings = FetchSettings {
            mirror: mirror.as_deref(),
            forge: forge.as_deref(),
            verify_tags,
            cache: &args.cache_dir(),
            parallel: args.parallel,
            update: &update,
            cancel: &cancelled,
        };
        fetch(&settings, &|progress| {
            // A closed receiver does not stop the fetch.
            let _ = events.blocking_send(progress);
        })
    });
    let mut view = FetchView::default();
    loop {
        tokio::select! {
            progress = received.recv() => match progress {
                Some(progress) => view.show(progress, &mut terminal.notes),
                // The task has ended.
                None => break,
            },
            () = signals.recv() => cancel.cancel(),
        }
    }
    terminal.notes.end_progress();
    work.await.map_err(|error| Failure::failed(anyhow::Error::new(error).context("fetching panicked")))?
}

/// The progress line.
#[derive(Default)]
struct FetchView {
    fetching: BTreeSet<String>,
    done: usize,
}

impl FetchView {
    fn show(&mut self, progress: FetchProgress, notes: &mut Notes) {
        match progress {
            FetchProgress::Fetching { name, .. } => {
                self.fetching.insert(name);
            }
            FetchProgress::Fetched { name, commit, from } => {
                let commit = commit.short();
                match from {
                    FetchOrigin::Cache => {}
                    FetchOrigin::Mirror => notes.note(format_args!("{name}: {commit} from the mirror")),
                    FetchOrigin::Source => notes.note(format_args!("{name}: {commit} from its source")),
                    FetchOrigin::SourceAfterMirror { mirror_error } => {
                        notes.note(format_args!("{name}: {commit} from its source; the mirror failed: {mirror_error}"));
                    }
                }
                self.finish(&name);
            }
            FetchProgress::Failed { name } => self.finish(&name),
        }
        if !self.fetching.is_empty() {
            let names: Vec<&str> = self.fetching.iter().map(String::as_str).collect();
            notes.progress(format_args!("fetching {} ({} done)", names.join(", "), self.done));
        }
    }

    fn finish(&mut self, name: &str) {
        self.fetching.remove(name);
        self.done += 1;
    }
}

pub(super) fn failure(error: AssembleError, dir: &Path) -> Failure {
    let import = || format!("run `muster release import-puppetfile {}`", dir.join(PUPPETFILE).display());
    match error {
        AssembleError::Failed { ref failures, .. } => {
            let text = |failure: &assemble::RepoFailure| {
                let hint = failure.hint().map(|hint| format!("\n    {hint}")).unwrap_or_default();
                format!("  {failure}{hint}")
            };
            let lines: Vec<String> = failures.iter().map(text).collect();
            let error = anyhow::Error::msg(format!("{error}\n{}", lines.join("\n")));
            Failure::failed(error)
        }
        AssembleError::Unknown { .. } => Failure::new(Exit::Usage, error),
        AssembleError::Cancelled => Failure::failed(error),
        AssembleError::NotImported { .. } => Failure::failed(error).hint(import()),
        AssembleError::Outdated { .. } => Failure::failed(error).hint(import()),
        AssembleError::Newest { error: ref source, ref module } => {
            let hint = source.hint(module);
            let failure = Failure::failed(error);
            hint.into_iter().fold(failure, Failure::hint)
        }
        AssembleError::Puppetfile(_) | AssembleError::ContainsItself { .. } => Failure::failed(error),
        AssembleError::Tree(_)
        | AssembleError::Repos(_)
        | AssembleError::Lock(_)
        | AssembleError::Read { .. }
        | AssembleError::Write { .. }
        | AssembleError::PathInUse { .. } => {
            Failure::failed(anyhow::Error::new(error).context("cannot build the release"))
        }
    }
}
