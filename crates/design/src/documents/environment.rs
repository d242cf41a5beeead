//! Reads environment files (`environments/*.yaml`) and cloud map files into documents.

use std::path::Path;
use std::sync::Arc;

use super::{DocumentReader, ReaderOutput};
use crate::documents::{Document, DocumentOrigin, Parent};
use crate::environment::{Environment, RoleDesign};
use crate::file_text::{FileText, Span};
use crate::finding::Code;
use crate::kinds::Kind;
use crate::yaml::{YamlEntry, YamlKey, YamlNode};

pub(super) struct EnvironmentFiles;

/// Directory of environment files, and suffix of map files.
const DIRECTORY: &str = "environments";
const MAP_FILE: &str = ".map.yaml";

/// Reports whether a path is that of an environment file or a map file.
pub fn is_environment_file(name: &str) -> bool {
    let path = Path::new(name);
    path.parent().and_then(Path::file_name).is_some_and(|directory| directory == DIRECTORY)
}

/// Name of the cloud of a map file.
fn cloud_of(name: &str) -> Option<&str> {
    Path::new(name).file_name()?.to_str()?.strip_suffix(MAP_FILE)
}

impl DocumentReader for EnvironmentFiles {
    fn name(&self) -> &'static str {
        "environment"
    }

    fn claims(&self, file: &FileText, _: Option<&YamlNode>) -> bool {
        is_environment_file(file.name())
    }

    fn read(&self, file: &FileText, trees: &[YamlNode], made: &mut ReaderOutput<'_, '_>) {
        match cloud_of(file.name()) {
            Some(cloud) => consume_map(cloud, trees, made),
            None => made.environments.extend(Environment::from_trees(file, trees, made.report)),
        }
    }
}

/// Reads a map file: one mapping, named after the cloud.
fn consume_map(cloud: &str, trees: &[YamlNode], made: &mut ReaderOutput<'_, '_>) {
    let Some(tree) = trees.first().filter(|tree| !tree.is_null()) else {
        let finding = Code::EmptyFile.finding("the map file is empty");
        made.report.add_to_file(finding.help("write at least: flavor: {small: NAME_IN_THIS_CLOUD}"));
        return;
    };
    if let Some(second) = trees.get(1) {
        let finding = Code::SeveralDocuments.finding("a map file must have one document; this is a second one");
        made.report.add(second.span, finding.help("give each cloud its own file, or remove the line ---"));
    }
    made.documents.push(Document {
        kind: Kind::Cloud.into(),
        name: cloud.into(),
        name_at: tree.span,
        extends: None,
        overlay: None,
        body: tree.clone(),
        span: tree.span,
        source: made.source,
        origin: DocumentOrigin::Environment,
    });
}

/// Nodes of an environment file as documents, which are a lower layer than written documents. All nodes of a role share
/// one body, except those with a host name.
pub(crate) fn generate(environment: &Environment, source: usize) -> impl Iterator<Item = Document> {
    environment.roles.iter().flat_map(move |role| {
        let (shared, span) = (body(role, None), role.written.key.span);
        let extends = parent(role).map(|parent| vec![parent]);
        let own = move |node| environment.host_name(node).map(|host_name| body(role, Some(host_name)));
        role.nodes.iter().map(move |node| Document {
            kind: Kind::Node.into(),
            name: node.as_str().into(),
            name_at: span,
            extends: extends.clone(),
            overlay: None,
            body: own(node).unwrap_or_else(|| shared.clone()),
            span,
            source,
            origin: DocumentOrigin::Environment,
        })
    })
}

fn parent(role: &RoleDesign) -> Option<Parent> {
    let profile = role.written.value.get("profile")?;
    Some(Parent { name: profile.scalar()?.shared_text(), span: profile.span })
}

fn body(role: &RoleDesign, host_name: Option<YamlNode>) -> YamlNode {
    let at = role.written.key.span;
    let made = |name: &str, value: YamlNode| YamlEntry { key: key(name, value.span), value };
    let mut entries = vec![made("role", YamlNode::from_text(role.written.key.text.clone(), at))];
    for name in ["flavor", "failure_domain", "labels"] {
        entries.extend(role.written.value.get(name).map(|value| made(name, value.clone())));
    }
    entries.extend(host_name.map(|value| made("host_name", value)));
    YamlNode::from_entries(entries, at)
}

fn key(text: &str, span: Span) -> YamlKey {
    YamlKey { text: Arc::from(text), span }
}
