//! The Design State API: what is asked and answered about an environment's design.
//!
//! Two sorts of revisions meet here. `revision` in an answer is the store's, as everywhere; the numbers of a design's own
//! revisions are called `design`, `head`, `applied`, `from` and `to`.

mod documents;
mod environments;
mod nodes;
mod revisions;
mod work;

pub use documents::{
    DocumentChange, DocumentChanges, DocumentChangesResponse, DocumentDetail, DocumentRow, DocumentText,
    WrittenDocument,
};
pub use environments::{DesignRevisions, DestroyResponse, EnvironmentDetail, RoleRow};
pub use nodes::{DesignNode, DesignNodeRow, PathProvenance, ProvenanceStep, ValueProvenance};
pub use revisions::{DesignDiff, DesignSummary, DiffKind, DocumentDiff, RevisionRow, SourceRow};
pub use work::{
    ApplyDesign, ApplyDesignResponse, CheckDesignResponse, DesignInput, PlanDesignResponse, SchemaRow, SourceBundle,
    SourceFile,
};

pub use muster_core::design::DesignRevision;
pub use muster_core::design::plan::{
    DesignPlan, DocumentTotals, NodeAction, NodePlan, PlanBase, RolePlan, Totals, ValueChange,
};
pub use muster_core::finding::Finding;

/// The header that says who makes a change.
pub const AUTHOR: &str = "muster-author";

/// The source that holds what was written through the API. It comes last, so it wins.
pub const API_SOURCE: &str = "api";

/// The media type of a document that is kept as it was written.
pub const YAML: &str = "application/yaml";

/// The file of a document in the source that holds what was written through the API: one file each.
pub fn api_file(kind: &str, name: &str) -> String {
    format!("{}/{}.yaml", segment(kind), segment(name))
}

/// One segment of a path: what could be taken for something else is percent-encoded.
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
