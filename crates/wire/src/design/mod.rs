//! Request and response types of the design API: documents, revisions, plans and applies.
//!
//! `revision` in a response is a revision of the store, as everywhere. Numbers of design revisions are called `design`,
//! `head`, `applied`, `from` and `to`.

mod apply;
mod documents;
mod revisions;

pub use apply::{
    ApplyDesign, ApplyDesignResponse, CheckDesignResponse, DesignInput, PlanDesignResponse, SchemaRow, SourceBundle,
    SourceFile,
};
pub use documents::{
    DesignNode, DesignNodeRow, DocumentChanges, DocumentChangesResponse, DocumentDetail, DocumentEdit, DocumentRow,
    DocumentText, PathProvenance, ProvenanceStep, ValueProvenance, WrittenDocument,
};
pub use revisions::{DesignDiff, DesignSummary, DiffKind, DocumentDiffRow, RevisionRow, SourceRow};

pub use muster_core::design::DesignRevision;
pub use muster_core::design::plan::{
    DesignPlan, DocumentTotals, NodeAction, NodePlan, PlanBase, RolePlan, Totals, ValueChange,
};
pub use muster_core::finding::Finding;

/// Header with the author of a change.
pub const AUTHOR: &str = "muster-author";

/// Source of documents that were written through the API. It comes last, so it wins.
pub const API_SOURCE: &str = "api";

/// Media type of a document that is stored unchanged.
pub const YAML: &str = "application/yaml";

/// File of a document in the source `api`: one file each.
pub fn api_file(kind: &str, name: &str) -> String {
    format!("{}/{}.yaml", segment(kind), segment(name))
}

/// Percent-encodes one segment of a path.
fn segment(text: &str) -> String {
    let mut segment = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            segment.push(char::from(byte));
        } else {
            segment.push_str(&format!("%{byte:02X}"));
        }
    }
    segment
}
