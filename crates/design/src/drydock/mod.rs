//! Reader of Drydock's documents, in both envelopes, and of documents of other programs in the same stream.
//!
//! A document is translated tree to tree into a native one. Each key and value keeps its span, so merge, rules and
//! provenance work on it like on a native document. Each kind has a table of its fields and their native names
//! ([`translate`]); one walk translates all of them and reports mistakes with Drydock's names.
//!
//! Drydock's defaults become a second document of the lowest level
//! ([`DocumentOrigin::Default`](crate::documents::DocumentOrigin)).

mod draft;
mod envelope;
mod host_profile;
mod kinds;
mod translate;

use crate::documents::{DocumentReader, ReaderOutput};
use crate::file_text::FileText;
use crate::finding::{Code, FindingCollector, quote};
use crate::kinds::Kind;
use crate::yaml::YamlNode;
use draft::Draft;
use envelope::Envelope;
use muster_core::spelling;
pub(crate) use translate::drydock_key;
use translate::{Shape, translate};

pub(crate) struct DrydockDocuments;

/// Name space and version of Drydock's documents.
const SPACE: &str = "drydock";
const VERSION: &str = "v1";

/// One of Drydock's kinds.
#[derive(Debug)]
struct DrydockKind {
    word: &'static str,
    becomes: Kind,
    shape: &'static Shape,
    /// Completes the translation beyond the table of fields.
    finish: fn(&mut Draft, &Envelope<'_>, &mut FindingCollector<'_>),
}

const KINDS: &[&DrydockKind] = &[
    &kinds::REGION_KIND,
    &kinds::RACK_KIND,
    &kinds::NETWORK_LINK_KIND,
    &kinds::NETWORK_KIND,
    &kinds::HARDWARE_PROFILE_KIND,
    &host_profile::KIND,
    &kinds::BAREMETAL_NODE_KIND,
    &kinds::BOOT_ACTION_KIND,
];

impl DocumentReader for DrydockDocuments {
    fn name(&self) -> &'static str {
        SPACE
    }

    fn claims(&self, _: &FileText, tree: Option<&YamlNode>) -> bool {
        tree.is_some_and(envelope::is_envelope)
    }

    fn read(&self, _: &FileText, trees: &[YamlNode], made: &mut ReaderOutput<'_, '_>) {
        for tree in trees {
            if let Some(envelope) = Envelope::open(tree, made.report) {
                document(&envelope, made);
            }
        }
    }
}

fn document(envelope: &Envelope<'_>, made: &mut ReaderOutput<'_, '_>) {
    if envelope.space != SPACE {
        made.documents.extend(envelope::item_document(envelope, made.source, made.report));
        return;
    }
    let Some(kind) = kind(envelope, made.report) else { return };
    if envelope::is_abstract(envelope, made.report) {
        return;
    }
    let mut draft = Draft::new(kind.becomes, envelope);
    if let Some(content) = envelope.content {
        draft.entries = translate(content, kind.shape, made.report).unwrap_or_default();
    }
    envelope::substitute(&mut draft, envelope, made.report);
    (kind.finish)(&mut draft, envelope, made.report);
    made.documents.extend(draft.into_documents(made.source));
}

/// Kind of a document. An unknown version is reported, and the document is read.
fn kind(envelope: &Envelope<'_>, report: &mut FindingCollector<'_>) -> Option<&'static DrydockKind> {
    let known = KINDS.iter().copied().find(|kind| kind.word == envelope.kind);
    if known.is_none() {
        let message = format!("{} is not one of Drydock's kinds", quote(envelope.kind));
        let help = match spelling::nearest(envelope.kind, KINDS.iter().map(|kind| kind.word)) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => {
                format!("Drydock's kinds are {}", KINDS.iter().map(|kind| kind.word).collect::<Vec<_>>().join(", "))
            }
        };
        report.add(envelope.kind_at, Code::DrydockKind.finding(message).help(help));
    }
    if envelope.version != VERSION {
        let message = match envelope.version {
            "" => "the schema's name has no version".to_owned(),
            version => format!("version {} of Drydock's documents is not known", quote(version)),
        };
        let finding = Code::DrydockVersion.finding(message).expected(format!("expected {VERSION}"));
        report.add(envelope.version_at, finding.help(format!("write {}", envelope.example(VERSION))));
    }
    known
}
