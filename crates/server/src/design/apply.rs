//! Plans and applies a design.

use std::sync::Arc;
use std::time::Duration;

use muster_core::design::DesignRevision;
use muster_core::design::plan::{DesignPlan, PlanBase};
use muster_core::fleet::Fleet;
use muster_core::names::{EnvName, NodeName};
use muster_core::txn::Revision;
use muster_design::finding::Findings;
use muster_wire::design::DesignInput;
use thiserror::Error;
use tokio::time::timeout;

use super::compiled::{CompiledDesign, DesignRef, ReadDesignError, Texts};
use super::input::{InputError, merge_sources};
use super::revision::{Attribution, BaseError, RevisionBase, RevisionError, RevisionOutcome, RevisionRequest, revise};
use super::tree::{DesignTree, DesignTreeError};
use crate::app::{Reader, Writer};
use crate::design::node_records::compare;
use crate::rollouts::gate::commands::RefusedGateCommand;
use crate::transactions::ConflictRetry;

/// Attempts of one apply. Each conflict means that another client changed the same design.
const ATTEMPTS: usize = 16;
/// Longest wait for the nodes to be registered after an apply.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(20);

/// Reason why a design is not planned or applied.
#[derive(Debug, Error)]
pub enum ApplyError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Read(#[from] ReadDesignError),
    #[error(transparent)]
    Revision(#[from] RevisionError),
    #[error("the design has errors; nothing was accepted")]
    Findings(Findings),
    #[error(transparent)]
    GateCommand(#[from] RefusedGateCommand),
    #[error("the plan is out of date: {}", .0.join("; "))]
    StalePlan(Vec<String>),
    #[error("this would remove all {nodes} nodes of {env}")]
    RemovesAll { env: EnvName, nodes: usize },
    #[error("environment {env} has no design yet, so there is nothing to apply")]
    Nothing { env: EnvName },
    #[error("conflict: other clients kept changing the design of {env}")]
    Contended { env: EnvName },
}

impl From<BaseError> for ApplyError {
    fn from(error: BaseError) -> Self {
        match error {
            BaseError::Read(error) => error.into(),
            BaseError::Revision(error) => error.into(),
        }
    }
}

/// A design that was sent, merged into the newest revision.
#[derive(Debug)]
pub struct DesignProposal {
    pub base: RevisionBase,
    pub next: Arc<CompiledDesign>,
    pub texts: Texts,
}

/// Result of an apply.
#[derive(Debug)]
pub struct AppliedDesign {
    pub number: DesignRevision,
    pub changed: bool,
    pub plan: DesignPlan,
    pub next: Arc<CompiledDesign>,
    /// The node records equal the design.
    pub registered: bool,
    pub revision: Revision,
}

/// Merges the sent sources into the newest revision, and compiles the result.
pub async fn propose(reader: &Reader, env: &EnvName, input: &Arc<DesignInput>) -> Result<DesignProposal, ApplyError> {
    let base = RevisionBase::read(reader, env).await?;
    let (compiled, input) = (base.compiled.clone(), input.clone());
    // Hashing megabytes takes time.
    let merging = tokio::task::spawn_blocking(move || merge_sources(&compiled.tree, &input));
    let (tree, texts) = merging.await.map_err(|_| RevisionError::CutOff)??;
    let next = compile(reader, &base, tree, &texts).await?;
    Ok(DesignProposal { base, next, texts })
}

/// Compiles a tree of files, starting from the newest revision. An unchanged tree is not compiled again.
pub async fn compile(
    reader: &Reader,
    base: &RevisionBase,
    tree: DesignTree,
    texts: &Texts,
) -> Result<Arc<CompiledDesign>, ApplyError> {
    if tree == base.compiled.tree {
        return Ok(base.compiled.clone());
    }
    let (blobs, env, near, texts) = (reader.blobs.clone(), base.env.clone(), base.compiled.clone(), texts.clone());
    let making = tokio::task::spawn_blocking(move || CompiledDesign::make(&blobs, &env, tree, Some(&near), &texts));
    let made: Result<CompiledDesign, DesignTreeError> = making.await.map_err(|_| RevisionError::CutOff)?;
    let number = base.head.map(|(number, _)| number).unwrap_or_default();
    let unreadable = |source| ReadDesignError::Tree { env: base.env.clone(), number, source };
    Ok(Arc::new(made.map_err(unreadable)?))
}

/// Plans a design: what applying it would do to the nodes.
pub async fn plan(reader: &Reader, proposal: &DesignProposal) -> Result<DesignPlan, ApplyError> {
    let DesignProposal { base, next, .. } = proposal;
    if !next.is_usable() {
        return Err(ApplyError::Findings(next.findings.clone()));
    }
    if let Some(strategy) = next.design.environment().and_then(|environment| environment.rollout.as_ref()) {
        reader.gate_commands.check(strategy)?;
    }
    let env = &base.env;
    let applied = match &base.applied {
        None => None,
        Some((applied, _)) => {
            let design_ref = {
                let fleets = reader.view.fleets();
                let empty = Fleet::new(env.clone());
                DesignRef::find(fleets.get(env).unwrap_or(&empty), Some(applied.revision))?
            };
            Some(reader.designs.get(env, &design_ref).await?)
        }
    };
    let fleets = reader.view.fleets();
    let nodes = fleets.get(env).into_iter().flat_map(Fleet::designed).map(|(name, _, record)| (name, record));
    let is_retired = |name: &NodeName| fleets.get(env).is_some_and(|fleet| fleet.is_retired(name));
    let applied = applied.as_ref().map(|applied| &applied.design);
    let planned = muster_design::plan(applied, &next.design, nodes, is_retired);
    let head = base.head.map(|(number, _)| number);
    let base = PlanBase { head, applied: base.applied.as_ref().map(|(applied, _)| applied.revision) };
    let muster_design::PlanContent { nodes, roles, totals, documents } = planned;
    let (design, cardinality) = (next.manifest.clone(), next.tree.cardinality.clone());
    Ok(DesignPlan { env: env.clone(), base, design, cardinality, nodes, roles, totals, documents })
}

/// Conditions of an apply.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyOptions<'p> {
    /// Plan that was shown to the operator. The apply does exactly this, or fails.
    pub shown: Option<&'p DesignPlan>,
    /// A design without nodes is intended. Otherwise it is probably the wrong directory.
    pub remove_all: bool,
}

/// Applies a design: exactly as planned, if a plan is given.
pub async fn apply(
    writer: &Writer,
    env: &EnvName,
    input: &Arc<DesignInput>,
    options: ApplyOptions<'_>,
    by: &Attribution,
) -> Result<AppliedDesign, ApplyError> {
    let mut retry = ConflictRetry::new(ATTEMPTS);
    while retry.begin_attempt() {
        let proposal = propose(writer, env, input).await?;
        let plan = plan(writer, &proposal).await?;
        if let Some(differences) =
            options.shown.map(|shown| shown.differences(&plan)).filter(|differences| !differences.is_empty())
        {
            return Err(ApplyError::StalePlan(differences));
        }
        if plan.removes_all() && !options.remove_all {
            return Err(ApplyError::RemovesAll { env: env.clone(), nodes: plan.totals.remove });
        }
        let DesignProposal { base, next, texts } = &proposal;
        let head = base.head.map(|(number, _)| number);
        let is_new = head.is_none() || next.manifest != base.compiled.manifest;
        if head.is_none() && next.tree.is_empty() {
            return Err(ApplyError::Nothing { env: env.clone() });
        }
        let is_applied = base.applied.as_ref().map(|(applied, _)| applied.revision) == head;
        let (number, revision) = if is_new || !is_applied {
            let request = RevisionRequest { next: is_new.then_some((next, texts)), apply: true, by: by.clone() };
            match revise(writer, base, request).await? {
                RevisionOutcome::Committed { number, revision } => (number, revision),
                RevisionOutcome::Overtaken => continue,
            }
        } else {
            (head.unwrap_or_default(), writer.view.revision().unwrap_or_default())
        };
        let (registered, revision) = wait_until_registered(writer, env, next, revision).await;
        let changed = is_new || !is_applied;
        return Ok(AppliedDesign { number, changed, plan, next: next.clone(), registered, revision });
    }
    Err(ApplyError::Contended { env: env.clone() })
}

/// Waits until the registered nodes equal the design. Returns whether they do, and the revision that shows it.
async fn wait_until_registered(
    reader: &Reader,
    env: &EnvName,
    design: &CompiledDesign,
    revision: Revision,
) -> (bool, Revision) {
    let records = design.records();
    let mut steps = reader.view.subscribe();
    let waiting = async {
        loop {
            steps.mark_unchanged();
            if reader.view.fleets().get(env).is_some_and(|fleet| compare(fleet, &records).is_nothing()) {
                return true;
            }
            tokio::select! {
                changed = steps.changed() => if changed.is_err() { return false },
                () = reader.stopping() => return false,
            }
        }
    };
    let registered = timeout(REGISTRATION_TIMEOUT, waiting).await.unwrap_or(false);
    (registered, reader.view.revision().unwrap_or_default().max(revision))
}
