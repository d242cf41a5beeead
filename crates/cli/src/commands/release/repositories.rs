//! The repositories of a release, fetched while somebody looks on: progress out, Ctrl-C in.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};

use muster_release::repos::assemble::{
    self, AssembleError, AssembledRelease, FetchProgress, FetchSettings, PARALLEL, PinUpdate,
};
use muster_release::repos::fetch::FetchOrigin;
use muster_release::repos::git::CancelHandle;
use tokio::sync::mpsc;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::{Notes, Terminal};
use crate::variables;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct RepoArgs {
    /// Take the newest commit of these repositories, or of all, and pin it in repos.lock
    #[arg(long, value_name = "NAME", num_args = 0..)]
    update: Option<Vec<String>>,
    /// Where repositories are kept between builds [default: the user's cache directory]
    #[arg(long, env = variables::CACHE, hide_env_values = true, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// How many repositories are fetched at a time
    #[arg(long, value_name = "N", default_value_t = PARALLEL, value_parser = parallel)]
    parallel: usize,
}

fn parallel(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=64) => Ok(number),
        Ok(_) | Err(_) => Err("it is a number from 1 to 64".to_owned()),
    }
}

/// Reads the directory, and fetches what its `repos.yaml` names.
pub(super) async fn assemble(
    dir: &Path,
    args: &RepoArgs,
    terminal: &mut Terminal,
) -> Result<AssembledRelease, Failure> {
    let cannot_start = |error| Failure::failed(anyhow::Error::new(error).context("cannot start"));
    let cancel = CancelHandle::new().map_err(cannot_start)?;
    let mut signals = Signals::new().map_err(cannot_start)?;
    // Few: whoever is told of progress keeps up, or the fetching waits a moment.
    let (tell, mut told) = mpsc::channel(16);
    let job = Job {
        dir: dir.to_owned(),
        cache: cache(args),
        update: match args.update.as_deref() {
            None => PinUpdate::None,
            Some([]) => PinUpdate::All,
            Some(names) => PinUpdate::These(names.iter().cloned().collect::<BTreeSet<_>>()),
        },
        parallel: args.parallel,
        cancel: cancel.clone(),
    };
    let work = tokio::task::spawn_blocking(move || job.run(&tell));
    let mut shown = Shown::default();
    loop {
        tokio::select! {
            progress = told.recv() => match progress {
                Some(progress) => shown.tell(progress, &mut terminal.notes),
                // The work is over, one way or the other.
                None => break,
            },
            () = signals.recv() => cancel.cancel(),
        }
    }
    terminal.notes.end_progress();
    work.await
        .map_err(|error| Failure::failed(anyhow::Error::new(error).context("fetching ended badly")))?
        .map_err(failure)
}

struct Job {
    dir: PathBuf,
    cache: PathBuf,
    update: PinUpdate,
    parallel: usize,
    cancel: CancelHandle,
}

impl Job {
    fn run(&self, tell: &mpsc::Sender<FetchProgress>) -> Result<AssembledRelease, AssembleError> {
        let mirror = env::var(variables::GIT_MIRROR).ok().filter(|mirror| !mirror.is_empty());
        let settings = FetchSettings {
            mirror: mirror.as_deref(),
            cache: &self.cache,
            parallel: self.parallel,
            update: &self.update,
            cancel: &self.cancel,
        };
        assemble::assemble(&self.dir, &settings, &|progress| {
            // Nobody to tell is no reason to stop.
            let _ = tell.blocking_send(progress);
        })
    }
}

/// What is going on, in one line.
#[derive(Default)]
struct Shown {
    fetching: BTreeSet<String>,
    done: usize,
}

impl Shown {
    fn tell(&mut self, progress: FetchProgress, notes: &mut Notes) {
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
                        notes.note(format_args!(
                            "{name}: {commit} from its source; the mirror did not have it: {mirror_error}"
                        ));
                    }
                }
                self.end(&name);
            }
            FetchProgress::Failed { name } => self.end(&name),
        }
        if !self.fetching.is_empty() {
            let names: Vec<&str> = self.fetching.iter().map(String::as_str).collect();
            notes.progress(format_args!("fetching {} ({} done)", names.join(", "), self.done));
        }
    }

    fn end(&mut self, name: &str) {
        self.fetching.remove(name);
        self.done += 1;
    }
}

fn cache(args: &RepoArgs) -> PathBuf {
    let home =
        || env::var_os(variables::HOME).filter(|home| !home.is_empty()).map(|home| Path::new(&home).join(".cache"));
    let user = || env::var_os(variables::CACHE_HOME).filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let found = args.cache.clone().or_else(|| user().or_else(home).map(|caches| caches.join("muster/git")));
    let cache =
        found.unwrap_or_else(|| env::temp_dir().join(format!("muster-git-{}", rustix::process::getuid().as_raw())));
    // Git works in the release's directory, and must find it from there.
    std::path::absolute(&cache).unwrap_or(cache)
}

fn failure(error: AssembleError) -> Failure {
    match error {
        AssembleError::Failed { ref failures, .. } => {
            let text = |failure: &assemble::RepoFailure| {
                let hint = failure.hint().map(|hint| format!("\n    {hint}")).unwrap_or_default();
                format!("  {failure}{hint}")
            };
            let told: Vec<String> = failures.iter().map(text).collect();
            let error = anyhow::Error::msg(format!("{error}\n{}", told.join("\n")));
            Failure::failed(error)
        }
        AssembleError::Unknown { .. } => Failure::new(Exit::Usage, error),
        AssembleError::Cancelled => Failure::failed(error),
        AssembleError::Tree(_)
        | AssembleError::Repos(_)
        | AssembleError::Lock(_)
        | AssembleError::Read { .. }
        | AssembleError::Write { .. }
        | AssembleError::PathInUse { .. } => {
            Failure::failed(anyhow::Error::new(error).context("the release cannot be built"))
        }
    }
}
