//! The documents of a design.

use std::collections::{BTreeMap, HashMap};

use axum::Json;
use axum::extract::{Query, State};
use muster_core::filter::{Fields, Filter, Keys};
use muster_design::diff::{Difference, diff};
use muster_design::kinds::Kind;
use muster_design::yaml::Node;
use muster_design::{Design, Written};
use muster_wire::design::{DocumentDiff, DocumentRow, Sort, ValueChange};
use muster_wire::operator::Page;

use super::RevisionQuery;
use crate::App;
use crate::api::answer::Refusal;
use crate::api::filter::FilterQuery;
use crate::api::page::PageQuery;
use crate::api::scope::Scope;
use crate::design::compiled::Compiled;

/// What documents can be chosen by.
const KEYS: Keys<'static> =
    Keys { fixed: &["kind", "name", "source", "file", "extends", "role", STATE], open: &["label."] };
/// How the node stands that a document describes: the one key that is not in the design.
const STATE: &str = "state";

/// Lists documents by kind and name: those that a filter chooses, such as `kind=Node role=compute label.rack=r1
/// state!=validated`. There is kind, name, source, file, extends, role, state (of a node that is there) and label.NAME.
#[utoipa::path(get, path = "/v1/envs/{env}/design/documents",
    params(("env" = String, Path), FilterQuery, RevisionQuery, PageQuery),
    responses((status = 200, body = Page<DocumentRow>)))]
pub(crate) async fn list(
    State(app): State<App>,
    scope: Scope,
    Query(query): Query<FilterQuery>,
    revision: Result<Query<RevisionQuery>, axum::extract::rejection::QueryRejection>,
    Query(page): Query<PageQuery>,
) -> Result<Json<Page<DocumentRow>>, Refusal> {
    let Query(revision) = revision.map_err(|error| Refusal::invalid(error.body_text()))?;
    let filter = query.read(&KEYS)?;
    let (_, design) = revision.design(&app, &scope).await?;
    let states =
        if filter.terms().iter().any(|term| &*term.key == STATE) { states(&app, &scope).await? } else { States::new() };
    let listing = tokio::task::spawn_blocking(move || rows(&design, &filter, &states));
    let rows = listing.await.map_err(|_| Refusal::stopping())?;
    let revision = app.view.revision().unwrap_or_default();
    Ok(Json(page.cut(rows, revision, |row| format!("{} {}", row.kind, row.name))?))
}

/// How each node stands, by name.
type States = HashMap<String, &'static str>;

async fn states(app: &App, scope: &Scope) -> Result<States, Refusal> {
    let elsewhere = app.activities_elsewhere(&scope.env, None).await;
    let rows = scope.ask(app, |fleet| crate::view::node_rows::all(fleet, app.agents(&elsewhere)))?;
    Ok(rows.into_iter().map(|row| (row.node.to_string(), row.standing.as_str())).collect())
}

fn rows(design: &Compiled, filter: &Filter, states: &States) -> Vec<DocumentRow> {
    let mut layers: BTreeMap<(&str, &str), Vec<Written<'_>>> = BTreeMap::new();
    // What environment files make has no document of its own, and is there all the same.
    for (kind, name, _) in design.design.effective_documents() {
        layers.entry((kind.word(), name)).or_default();
    }
    for written in design.design.written() {
        layers.entry((written.kind.word(), written.name)).or_default().push(written);
    }
    let mut rows = Vec::new();
    for ((kind, name), mut layers) in layers {
        layers.sort_by_key(|layer| design.tree.sources.iter().position(|source| source.name == layer.source));
        let state = if kind == Kind::Node.word() { states.get(name).copied() } else { None };
        let chosen = Chosen { kind, name, state, layers: &layers, effective: design.design.effective(kind, name) };
        if !filter.matches(&chosen) {
            continue;
        }
        let last = layers.last();
        rows.push(DocumentRow {
            kind: kind.to_owned(),
            name: name.to_owned(),
            sources: layers.iter().map(|layer| layer.source.to_owned()).collect(),
            labels: chosen.labels().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            file: last.map(|layer| layer.file.to_owned()),
            line: last.map(|layer| layer.line),
        });
    }
    rows
}

/// A document, as a filter sees it.
struct Chosen<'d> {
    kind: &'d str,
    name: &'d str,
    state: Option<&'static str>,
    layers: &'d [Written<'d>],
    effective: Option<&'d Node>,
}

impl<'d> Chosen<'d> {
    fn labels(&self) -> impl Iterator<Item = (&'d str, &'d str)> + use<'d> {
        let labels = self.effective.and_then(|tree| tree.get("labels")).and_then(Node::map);
        let entries = labels.map(|labels| labels.entries()).unwrap_or_default();
        entries.iter().filter_map(|entry| Some((&*entry.key.text, entry.value.scalar()?.text())))
    }
}

impl Fields for Chosen<'_> {
    fn any(&self, key: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
        match key {
            "kind" => test(self.kind),
            "name" => test(self.name),
            "source" => self.layers.iter().any(|layer| test(layer.source)),
            "file" => self.layers.iter().any(|layer| test(layer.file)),
            "extends" => self.layers.iter().flat_map(Written::extends).any(test),
            STATE => self.state.is_some_and(test),
            "role" => self.effective.and_then(|tree| tree.get("role")).and_then(Node::text).is_some_and(test),
            key => match key.strip_prefix("label.") {
                Some(name) => self.labels().filter(|(label, _)| *label == name).any(|(_, value)| test(value)),
                None => false,
            },
        }
    }
}

/// What lies between two designs.
pub(super) fn told_diff(before: &Design, after: &Design) -> Vec<DocumentDiff> {
    let told = |found: muster_design::diff::DocumentDiff| {
        let (sort, changes) = match found.what {
            Difference::Added => (Sort::Added, Vec::new()),
            Difference::Removed => (Sort::Removed, Vec::new()),
            Difference::Changed { values } => (Sort::Changed, values.iter().map(ValueChange::from).collect()),
        };
        DocumentDiff { kind: found.kind, name: found.name, sort, changes }
    };
    diff(before, after).into_iter().map(told).collect()
}
