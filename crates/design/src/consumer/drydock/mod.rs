//! Drydock's documents, in both of their envelopes, and those of other programs in the same stream.
//!
//! A document is translated tree to tree into a native one, positions kept: each key and value of the result has the
//! place of what it was made of. So merge, rules, `why` and everything else is shared, and Drydock's own code has no
//! counterpart here. What a kind's fields are, and what each becomes, is one table a kind ([`shape`]); one walk reads
//! them all ([`translate`]), and complains in Drydock's words.
//!
//! Where Drydock fills in what is not written, a second document says so: the lowest layer of all
//! ([`Maker::Default`](crate::document::Maker)), below every source.

mod baremetal_node;
mod boot_action;
mod deckhand;
mod draft;
mod envelope;
mod hardware_profile;
mod host_profile;
mod item;
mod network;
mod network_link;
mod rack;
mod region;
mod role;
mod shape;
mod translate;
mod words;

use super::{Consumer, Made};
use crate::file_text::FileText;
use crate::finding::{Code, Report, quote};
use crate::kinds::Kind;
use crate::spelling;
use crate::yaml::Node;
use draft::Draft;
use envelope::Envelope;
use shape::Shape;
use translate::translate;
pub(super) use words::word;

pub(super) struct DrydockDocuments;

/// The name space, and the only version that there ever was.
const SPACE: &str = "drydock";
const VERSION: &str = "v1";

/// One of Drydock's kinds.
#[derive(Debug)]
struct DrydockKind {
    word: &'static str,
    becomes: Kind,
    shape: &'static Shape,
    /// Puts in order what a table of fields cannot say.
    finish: fn(&mut Draft, &Envelope<'_>, &mut Report<'_>),
}

const KINDS: &[&DrydockKind] = &[
    &region::KIND,
    &rack::KIND,
    &network_link::KIND,
    &network::KIND,
    &hardware_profile::KIND,
    &host_profile::KIND,
    &baremetal_node::KIND,
    &boot_action::KIND,
];

impl Consumer for DrydockDocuments {
    fn name(&self) -> &'static str {
        SPACE
    }

    fn claims(&self, _: &FileText, tree: Option<&Node>) -> bool {
        tree.is_some_and(envelope::is_one)
    }

    fn consume(&self, _: &FileText, trees: &[Node], made: &mut Made<'_, '_>) {
        for tree in trees {
            if let Some(envelope) = Envelope::open(tree, made.report) {
                document(&envelope, made);
            }
        }
    }
}

fn document(envelope: &Envelope<'_>, made: &mut Made<'_, '_>) {
    if envelope.space != SPACE {
        made.documents.extend(item::document(envelope, made.source, made.report));
        return;
    }
    let Some(kind) = kind(envelope, made.report) else { return };
    if deckhand::is_abstract(envelope, made.report) {
        return;
    }
    let mut draft = Draft::new(kind.becomes, envelope);
    if let Some(content) = envelope.content {
        draft.entries = translate(content, kind.shape, made.report).unwrap_or_default();
    }
    deckhand::substitute(&mut draft, envelope, made.report);
    (kind.finish)(&mut draft, envelope, made.report);
    made.documents.extend(draft.into_documents(made.source));
}

/// Which of Drydock's kinds it is; what is wrong with its version does not keep the rest from being read.
fn kind(envelope: &Envelope<'_>, report: &mut Report<'_>) -> Option<&'static DrydockKind> {
    let known = KINDS.iter().copied().find(|kind| kind.word == envelope.kind);
    if known.is_none() {
        let message = format!("{} is not one of Drydock's kinds", quote(envelope.kind));
        let help = match spelling::nearest(envelope.kind, KINDS.iter().map(|kind| kind.word)) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("Drydock knows {}", KINDS.iter().map(|kind| kind.word).collect::<Vec<_>>().join(", ")),
        };
        report.add(envelope.kind_at, Code::DrydockKind.finding(message).help(help));
    }
    if envelope.version != VERSION {
        let message = match envelope.version {
            "" => "the schema's name says no version".to_owned(),
            version => format!("version {} of Drydock's documents is not known", quote(version)),
        };
        let finding = Code::DrydockVersion.finding(message).expected(format!("expected {VERSION}"));
        report.add(envelope.version_at, finding.help(format!("write {}", envelope.example(VERSION))));
    }
    known
}
