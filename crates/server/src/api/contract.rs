//! Completes the OpenAPI document with what all operations share: errors with their codes, security, request ids, idempotency
//! keys and conditional reads.
//!
//! The codes of an operation follow from the authorisation table and from its parameters. [`DECLARED`] lists the others, by
//! operation. A test sends invalid requests to every operation and compares the answers with the document.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;
use muster_core::names::{DataKey, EnvName, UserName, Version};
use muster_core::release::manifest::Digest;
use muster_wire::problem::{MEDIA_TYPE, ProblemCode as Code};
use serde_json::{Map, Value, json};
use utoipa::openapi::schema::{Object, Schema, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

use super::authorization::{Machines, People, access};

/// Extension of an operation: the codes that it can answer with.
const CODES: &str = "x-problem-codes";

/// Schemas of the events of streams.
const EVENTS: [&str; 2] = ["SyncEvent", "LogEvent"];
/// Property of these schemas that has the name of the event.
const EVENT_TAG: &str = "event";

/// Schema of a body of opaque bytes: a bundle, a delta of bundles, or a backup.
pub(crate) struct Archive;

impl PartialSchema for Archive {
    fn schema() -> RefOr<Schema> {
        Object::builder().schema_type(Type::String).format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary))).into()
    }
}

impl ToSchema for Archive {}

/// Codes that do not follow from the parameters of an operation.
const DECLARED: &[(&str, &[Code])] = &[
    ("readyz", &[Code::CannotTell]),
    ("show_authority", &[Code::NotFound]),
    ("show_rotation", &[Code::NotFound]),
    ("rotate_authority", &[Code::NotFound, Code::UnknownIdentity]),
    ("cancel_rotation", &[Code::NotFound]),
    (
        "join",
        &[
            Code::JoinRefused,
            Code::NoPlace,
            Code::NotFound,
            Code::TooManyAttempts,
            Code::CannotTell,
            Code::StoreUnavailable,
        ],
    ),
    ("renew", &[Code::NotFound]),
    (
        "log_in",
        &[
            Code::NotFound,
            Code::Unauthenticated,
            Code::UnknownUser,
            Code::TooManyAttempts,
            Code::CannotTell,
            Code::StoreUnavailable,
        ],
    ),
    ("create_token", &[Code::NotFound, Code::UnknownNode, Code::UnknownRole]),
    ("set_datum", &[Code::UnknownNode, Code::UnknownRole]),
    ("list_data", &[Code::UnknownNode, Code::UnknownRole]),
    ("set_pause", &[Code::UnknownNode, Code::UnknownRole]),
    ("end_pause", &[Code::UnknownNode, Code::UnknownRole]),
    ("set_policy", &[Code::PolicyRefused]),
    ("end_policy", &[Code::PolicyRefused]),
    ("lookup_key", &[Code::NotFound]),
    ("show_self", &[Code::NotFound]),
    ("show_self_value", &[Code::NotFound]),
    ("show_own_self", &[Code::InvalidRequest, Code::UnknownEnvironment, Code::UnknownNode, Code::NotFound]),
    ("show_own_self_value", &[Code::InvalidRequest, Code::UnknownEnvironment, Code::UnknownNode, Code::NotFound]),
    ("show_design_node", &[Code::NotFound]),
    ("show_run_request", &[Code::UnknownVersion]),
    ("receive_log_piece", &[Code::Conflict]),
    ("open_stream", &[Code::DuplicateAgent, Code::IncompatibleAgent]),
    ("receive_report", &[Code::IncompatibleAgent]),
    ("desired_state", &[Code::IncompatibleAgent]),
    ("change_current_version", &[Code::UnknownVersion, Code::OlderRelease, Code::RolloutUnderWay, Code::PlanOutdated]),
    ("plan_rollout", &[Code::UnknownVersion, Code::OlderRelease, Code::Destroying, Code::RolloutRefused]),
    (
        "start_rollout",
        &[Code::UnknownVersion, Code::OlderRelease, Code::RolloutUnderWay, Code::RolloutRefused, Code::PlanOutdated],
    ),
    ("pause", &[Code::RolloutRefused, Code::UnknownNode]),
    ("resume", &[Code::RolloutRefused, Code::UnknownNode]),
    ("abort", &[Code::RolloutRefused, Code::UnknownNode]),
    ("promote", &[Code::RolloutRefused, Code::UnknownNode]),
    ("skip", &[Code::RolloutRefused, Code::UnknownNode]),
    ("retry", &[Code::RolloutRefused, Code::UnknownNode]),
    (
        "roll_back_rollout",
        &[
            Code::RolloutRefused,
            Code::UnknownNode,
            Code::UnknownVersion,
            Code::OlderRelease,
            Code::RolloutUnderWay,
            Code::PlanOutdated,
        ],
    ),
    ("release_slot", &[Code::RolloutRefused, Code::UnknownRollout]),
    ("list_slots", &[Code::DesignUnreadable]),
    ("put_bundle", &[Code::ReleaseRefused, Code::UploadsFull]),
    ("push_release", &[Code::UnknownBundle, Code::ReleaseRefused, Code::ReleaseTaken]),
    ("show_release", &[Code::ReleaseUnreadable]),
    ("download_bundle", &[Code::ReleaseUnreadable, Code::RangeNotSatisfiable]),
    ("download_delta", &[Code::ReleaseUnreadable, Code::NotFound]),
    ("replace_trusted_keys", &[Code::ReleaseRefused, Code::UntrustsCurrent]),
    ("show_design", &[Code::NotFound]),
    ("diff_revisions", &[Code::NotFound, Code::UnknownDesignRevision]),
    ("change_documents", &[Code::DesignRefused, Code::NotAsExpected, Code::UnknownDocument]),
    ("put_document", &[Code::DesignRefused]),
    ("delete_document", &[Code::DesignRefused]),
    ("check_design", &[Code::DesignRefused, Code::UnknownDesignRevision]),
    ("plan_design", &[Code::DesignRefused, Code::UnknownDesignRevision, Code::NotFound]),
    (
        "apply_design",
        &[Code::DesignRefused, Code::UnknownDesignRevision, Code::PlanOutdated, Code::RemovesAll, Code::NotFound],
    ),
    ("restore_backup", &[Code::UnsupportedMediaType]),
    ("create_user_token", &[Code::Forbidden]),
];

/// Parts of paths with the patterns of their names. Nodes are found by node name and by host name, which have no pattern in
/// common.
const PATTERNS: [(&str, &str); 5] = [
    ("/{env}", EnvName::PATTERN),
    ("/{version}", Version::PATTERN),
    ("/{user}", UserName::PATTERN),
    ("/data/{key}", DataKey::PATTERN),
    ("/{digest}", Digest::PATTERN),
];

/// Completes the document of all routes.
pub(super) fn complete(mut document: Value) -> Value {
    let mut statuses = BTreeMap::<u16, BTreeSet<&'static str>>::new();
    if let Some(paths) = document["paths"].as_object_mut() {
        for (path, item) in paths {
            for (method, operation) in item.as_object_mut().into_iter().flatten() {
                complete_operation(&method.to_uppercase(), path, operation, &mut statuses);
            }
        }
    }
    let components = &mut document["components"];
    for name in EVENTS {
        let events = &mut components["schemas"][name];
        *events = event_frames(events);
    }
    components["responses"] =
        statuses.into_iter().map(|(status, titles)| (format!("Problem{status}"), response(status, &titles))).collect();
    components["parameters"] = parameters();
    components["headers"] = json!({
        "RequestId": {"description": "Id of the request, also in the log and in the audit.", "required": true,
            "schema": {"type": "string", "maxLength": 100}},
        "ETag": {"description": "Tag of this content, for `If-None-Match`, and for `If-Match` where a change takes it.",
            "schema": {"type": "string"}},
        "RetryAfter": {"description": "Seconds to wait before the next attempt.", "schema": {"type": "integer"}},
    });
    components["securitySchemes"] = json!({
        "token": {"type": "http", "scheme": "bearer",
            "description": "Token of a user, or of the server. The Unix socket of the server needs none."},
        "certificate": {"type": "mutualTLS", "description": "Certificate of a node or of another server."},
    });
    document
}

fn complete_operation(
    method: &str,
    path: &str,
    operation: &mut Value,
    statuses: &mut BTreeMap<u16, BTreeSet<&'static str>>,
) {
    let (machines, people) = access(method, path);
    operation["security"] = match (people, machines) {
        (People::Everyone, _) => json!([]),
        (_, Machines::None) => json!([{"token": []}]),
        (_, Machines::CertificateHolders) => json!([{"certificate": []}]),
        (_, Machines::OwnNode | Machines::NodesOfEnvironment | Machines::Nodes | Machines::Replicas) => {
            json!([{"token": []}, {"certificate": []}])
        }
    };
    let codes = codes(method, path, operation);
    let mut shared = vec!["RequestId"];
    if path.contains("{env}") {
        shared.push("MinRevision");
    }
    if takes_idempotency_key(method, path) {
        shared.push("IdempotencyKey");
    }
    let mut headers = vec!["RequestId"];
    let is_tagged = has_etag(method, operation);
    if is_tagged {
        shared.push("IfNoneMatch");
        headers.push("ETag");
    }
    let mut own = operation["parameters"].as_array().cloned().unwrap_or_default();
    for parameter in own.iter_mut().filter(|parameter| parameter["in"] == "path") {
        let name = format!("{{{}}}", parameter["name"].as_str().unwrap_or_default());
        if let Some((_, pattern)) = PATTERNS.iter().find(|(part, _)| part.ends_with(&name) && path.contains(part)) {
            parameter["schema"]["pattern"] = (*pattern).into();
        }
    }
    let shared = shared.into_iter().map(|name| reference("parameters", name));
    operation["parameters"] = own.into_iter().chain(shared).collect();
    let responses = operation["responses"].as_object_mut();
    for response in responses.into_iter().flatten().map(|(_, response)| response) {
        for name in &headers {
            let key = if *name == "RequestId" { "x-request-id" } else { name };
            response["headers"][key] = reference("headers", name);
        }
    }
    if is_tagged {
        let headers = json!({"x-request-id": reference("headers", "RequestId"), "ETag": reference("headers", "ETag")});
        operation["responses"]["304"] = json!({"description": "The content has this tag.", "headers": headers});
    }
    let mut by_status = BTreeMap::<u16, Vec<String>>::new();
    for code in &codes {
        by_status.entry(code.status()).or_default().push(format!("`{}`", word(*code)));
        statuses.entry(code.status()).or_default().insert(code.title());
    }
    for (status, codes) in by_status {
        let mut problem = reference("responses", &format!("Problem{status}"));
        problem["description"] = codes.join(", ").into();
        operation["responses"][status.to_string()] = problem;
    }
    operation[CODES] = codes.into_iter().map(word).collect();
}

/// Schema of the events of a stream. The tag of the enum is the name of an event, and the other properties are its data.
fn event_frames(events: &Value) -> Value {
    let frames: Vec<Value> = events["oneOf"].as_array().into_iter().flatten().map(event_frame).collect();
    json!({"description": events["description"], "oneOf": frames})
}

fn event_frame(variant: &Value) -> Value {
    let mut data = variant.clone();
    let mut name = take_tag(&mut data);
    if let Some(parts) = data.get_mut("allOf").and_then(Value::as_array_mut) {
        for part in parts.iter_mut() {
            name = take_tag(part).or(name);
        }
        parts.retain(|part| part["properties"] != json!({}));
    }
    json!({
        "type": "object",
        "required": ["event", "data"],
        "properties": {
            "event": name,
            "data": {"type": "string", "contentMediaType": "application/json", "contentSchema": data},
        },
    })
}

/// Removes the tag from the schema of an enum's variant, and returns the schema of the tag.
fn take_tag(variant: &mut Value) -> Option<Value> {
    let tag = variant.get_mut("properties")?.as_object_mut()?.remove(EVENT_TAG)?;
    if let Some(required) = variant.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name != EVENT_TAG);
    }
    Some(tag)
}

/// Codes of an operation, without duplicates, in the order of their definition.
fn codes(method: &str, path: &str, operation: &Value) -> Vec<Code> {
    let (_, people) = access(method, path);
    let id = operation["operationId"].as_str().unwrap_or_default();
    let mut codes = vec![Code::Forbidden, Code::Busy, Code::Internal];
    codes.extend(DECLARED.iter().filter(|(of, _)| *of == id).flat_map(|(_, codes)| codes.iter()));
    if people != People::Everyone {
        codes.extend([Code::Unauthenticated, Code::CertificateRefused, Code::TooManyAttempts]);
        codes.extend([Code::CannotTell, Code::StoreUnavailable]);
    }
    let named =
        operation["parameters"].as_array().into_iter().flatten().filter_map(|parameter| parameter["name"].as_str());
    let named: BTreeSet<&str> = named.collect();
    let has_body = !operation["requestBody"].is_null();
    if !named.is_empty() || has_body {
        codes.push(Code::InvalidRequest);
    }
    if has_body {
        codes.extend([Code::TooLarge, Code::UnsupportedMediaType]);
    }
    let of_parameters: [(&str, &[Code]); 14] = [
        ("env", &[Code::UnknownEnvironment]),
        ("node", if path.contains("{node}") { &[Code::UnknownNode] } else { &[] }),
        ("host", &[Code::UnknownNode]),
        ("effective", &[Code::UnknownNode]),
        ("version", &[Code::UnknownVersion]),
        ("user", &[Code::UnknownUser]),
        ("token", &[Code::UnknownIdentity]),
        ("run", &[Code::UnknownRun]),
        ("digest", &[Code::UnknownBundle]),
        ("kind", &[Code::UnknownKind, Code::UnknownDocument]),
        ("number", &[Code::UnknownDesignRevision]),
        ("revision", &[Code::UnknownDesignRevision]),
        ("filter", &[Code::InvalidFilter]),
        ("If-Match", &[Code::NotAsExpected]),
    ];
    codes.extend(of_parameters.iter().filter(|(name, _)| named.contains(name)).flat_map(|(_, codes)| codes.iter()));
    if named.contains("id") {
        codes.push(if path.contains("/rollouts/") { Code::UnknownRollout } else { Code::UnknownRun });
    }
    let of_paths: [(&str, &[Code]); 3] = [
        ("/design", &[Code::DesignUnreadable]),
        ("/certificates/{node}", &[Code::UnknownIdentity]),
        ("/data/{key}", &[Code::UnknownDatum]),
    ];
    codes.extend(of_paths.iter().filter(|(part, _)| path.contains(part)).flat_map(|(_, codes)| codes.iter()));
    if takes_idempotency_key(method, path) {
        codes.extend([Code::Conflict, Code::IdempotencyKeyReused, Code::AlreadyExecuted, Code::StoreFull]);
        if named.contains("env") {
            codes.push(Code::Destroying);
        }
    } else if method != "GET" {
        codes.extend([Code::Conflict, Code::StoreFull]);
    }
    Code::ALL.into_iter().filter(|code| codes.contains(code)).collect()
}

/// True for changes by people. Machines report with sequence numbers, and join and renew with keys of their own. Bundles and
/// backups are streams of any size.
pub(super) fn takes_idempotency_key(method: &str, path: &str) -> bool {
    let (machines, people) = access(method, path);
    let reads = matches!(people, People::Role(role) if role == muster_core::user::UserRole::Viewer);
    let is_stream = ["/bundles/", "/restore"].into_iter().any(|part| path.contains(part));
    method != "GET" && !is_stream && machines == Machines::None && people != People::Everyone && !reads
}

/// True for reads of one resource, which are answered with JSON.
fn has_etag(method: &str, operation: &Value) -> bool {
    let parameters = operation["parameters"].as_array();
    let has = |name: &str| parameters.is_some_and(|all| all.iter().any(|parameter| parameter["name"] == name));
    let is_json = operation["responses"]["200"]["content"]["application/json"].is_object();
    method == "GET" && is_json && !["limit", "wait_seconds", "follow"].into_iter().any(has)
}

/// Templates of the routes whose answers have a tag.
pub(super) fn tagged_routes(document: &Value) -> BTreeSet<String> {
    operations(document)
        .filter(|(method, _, operation)| *method == Method::GET && operation["responses"]["304"].is_object())
        .map(|(_, path, _)| path.to_owned())
        .collect()
}

/// All operations of a document: method, path and description.
pub(super) fn operations(document: &Value) -> impl Iterator<Item = (Method, &str, &Value)> {
    let paths = document["paths"].as_object().into_iter().flatten();
    paths.flat_map(|(path, item)| {
        let of_path = item.as_object().into_iter().flatten();
        of_path.filter_map(move |(method, operation)| {
            Some((Method::from_bytes(method.to_uppercase().as_bytes()).ok()?, path.as_str(), operation))
        })
    })
}

fn response(status: u16, titles: &BTreeSet<&str>) -> Value {
    let mut headers = Map::new();
    headers.insert("x-request-id".to_owned(), reference("headers", "RequestId"));
    if matches!(status, 409 | 429 | 503) {
        headers.insert("Retry-After".to_owned(), reference("headers", "RetryAfter"));
    }
    let titles: Vec<&str> = titles.iter().copied().collect();
    let schema = json!({"$ref": "#/components/schemas/Problem"});
    json!({"description": titles.join("; "), "headers": headers, "content": {(MEDIA_TYPE): {"schema": schema}}})
}

fn parameters() -> Value {
    let header = |name: &str, description: &str, schema: Value| json!({"name": name, "in": "header", "description": description, "schema": schema});
    json!({
        "RequestId": header("x-request-id", "Id of the request; an invalid one is replaced.", json!({"type": "string"})),
        "MinRevision": header(
            "Muster-Min-Revision",
            "The answer is at least as new as this revision, or the problem `cannot_tell`.",
            json!({"type": "integer", "format": "uint64", "minimum": 0}),
        ),
        "IdempotencyKey": header(
            "Idempotency-Key",
            "A repeated request with the same key is executed once.",
            json!({"type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[A-Za-z0-9._:-]+$"}),
        ),
        "IfNoneMatch": header("If-None-Match", "Tags of known content: the answer is 304 if it has one of them.", json!({"type": "string"})),
    })
}

fn reference(kind: &str, name: &str) -> Value {
    json!({"$ref": format!("#/components/{kind}/{name}")})
}

/// The code as it is sent.
fn word(code: Code) -> String {
    serde_json::to_value(code).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_codes_are_of_operations() {
        let document = crate::openapi();
        let ids: BTreeSet<&str> = operations(&document).filter_map(|(_, _, of)| of["operationId"].as_str()).collect();
        let unknown: Vec<&str> = DECLARED.iter().map(|(id, _)| *id).filter(|id| !ids.contains(id)).collect();
        assert_eq!(unknown, Vec::<&str>::new());
    }

    #[test]
    fn events_are_described_as_they_are_sent() {
        let mut names = BTreeMap::new();
        for schema in EVENTS {
            let document = crate::openapi();
            let events = document["components"]["schemas"][schema]["oneOf"].as_array().unwrap().clone();
            for event in events {
                let name = event["properties"]["event"]["enum"][0].as_str().unwrap().to_owned();
                let data = &event["properties"]["data"]["contentSchema"];
                assert!(!data.to_string().contains("\"event\""), "{name}: {data}");
                names.insert(name, data.clone());
            }
        }
        let names_of_hello: Vec<&str> =
            names["hello"]["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(names_of_hello, ["incarnation", "role", "now"]);
        assert_eq!(names["desired"]["allOf"], json!([{"$ref": "#/components/schemas/DesiredState"}]));
        let sent = muster_wire::sse::encode(&muster_wire::sync::SyncEvent::Ping).unwrap();
        assert_eq!(sent, "event: ping\ndata: {}\n\n");
        assert_eq!(names["ping"]["required"], json!([]));
    }

    #[test]
    fn every_list_is_divided_into_pages() {
        let document = crate::openapi();
        for (_, path, operation) in operations(&document) {
            let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"];
            let name = schema.as_str().unwrap_or_default().trim_start_matches("#/components/schemas/");
            let schema = &document["components"]["schemas"][name];
            if schema["properties"]["items"].is_null() {
                continue;
            }
            let parameters: Vec<&str> =
                operation["parameters"].as_array().unwrap().iter().filter_map(|of| of["name"].as_str()).collect();
            assert!(parameters.contains(&"limit") && parameters.contains(&"after"), "{path}: {parameters:?}");
            for field in ["next", "revision"] {
                assert!(schema["properties"][field].is_object(), "{path} {field}");
            }
        }
    }

    #[test]
    fn page_of_the_book_lists_all_problem_codes() {
        let mut text = String::from(
            "# Problem codes\n\nThis table is made from the code. A problem of [the API](api.md#conventions) has one of these codes. \
             They are stable.\n\n| code | status | title |\n|---|---|---|\n",
        );
        let mut codes = Code::ALL;
        codes.sort_by_key(|code| (code.status(), word(*code)));
        for code in codes {
            text += &format!("| `{}` | {} | {} |\n", word(code), code.status(), code.title());
        }
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/problems.md");
        if std::env::var_os("UPDATE_AUTHORIZATION").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == text, "docs/src/problems.md is outdated: run `make reference`");
    }
}
