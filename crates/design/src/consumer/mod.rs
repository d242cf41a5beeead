//! Consumers: who turns trees into documents. Each knows one way of writing.

mod drydock;
mod environment;
mod native;

use crate::document::{Document, Maker};
use crate::environment::Environment;
use crate::file_text::FileText;
use crate::finding::Report;
use crate::types::Words;
use crate::yaml::Node;

pub(crate) use environment::generate;
pub use environment::is_environment_file;

/// Understands one way of writing designs.
pub trait Consumer: Sync {
    /// `native`, `environment`, `drydock`.
    fn name(&self) -> &'static str;

    /// Whether a tree of this file is for this consumer; `None`: the file holds no tree.
    fn claims(&self, file: &FileText, tree: Option<&Node>) -> bool;

    /// Makes documents of the trees that it has claimed in one file.
    fn consume(&self, file: &FileText, trees: &[Node], made: &mut Made<'_, '_>);
}

/// What consumers have made of one file.
#[derive(Debug)]
pub struct Made<'m, 'r> {
    /// The number of the source that the file belongs to.
    pub(crate) source: usize,
    pub(crate) documents: &'m mut Vec<Document>,
    pub(crate) environments: &'m mut Vec<Environment>,
    pub(crate) report: &'m mut Report<'r>,
}

/// All consumers. The first that claims a tree gets it; the native one takes what nobody else knows.
const CONSUMERS: &[&dyn Consumer] =
    &[&environment::EnvironmentFiles, &drydock::DrydockDocuments, &native::NativeDocuments];

/// What the native keys of a document are called where it is written, so that findings speak its author's language.
pub(crate) fn words(maker: Maker) -> Words {
    match maker {
        Maker::Default | Maker::Drydock => drydock::word,
        Maker::Environment | Maker::Native => |native| native,
    }
}

/// Hands the trees of a file to whoever claims them.
pub(crate) fn consume(file: &FileText, trees: &[Node], made: &mut Made<'_, '_>) {
    let claimant = |tree: Option<&Node>| CONSUMERS.iter().position(|consumer| consumer.claims(file, tree));
    if trees.is_empty() {
        if let Some(consumer) = claimant(None).and_then(|at| CONSUMERS.get(at)) {
            consumer.consume(file, trees, made);
        }
        return;
    }
    let holds_any = trees.iter().any(|tree| !tree.is_null());
    for run in trees.chunk_by(|a, b| claimant(Some(a)) == claimant(Some(b))) {
        // Two lines of dashes with nothing between them are nobody's business, unless there is nothing else.
        if holds_any && run.iter().all(Node::is_null) {
            continue;
        }
        if let Some(consumer) = claimant(run.first()).and_then(|at| CONSUMERS.get(at)) {
            consumer.consume(file, run, made);
        }
    }
}
