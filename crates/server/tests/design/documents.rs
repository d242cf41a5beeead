//! Single documents: create, read, update, delete, and refused changes.

use muster_core::finding::Severity;
use muster_wire::client::{DocumentPrecondition, WriteOptions};
use muster_wire::design::{DesignRevision, DocumentChanges, DocumentEdit, DocumentText, YAML};
use muster_wire::problem::ProblemCode;
use serde_json::json;

use crate::fixture::{env, refused, site};
use crate::on_both_stores;

fn yaml(text: &str) -> DocumentText {
    DocumentText::Yaml(text.to_owned())
}

fn rack(clli: &str) -> DocumentText {
    yaml(&format!("# kept as it is\nkind: Rack\nname: r1\nlabels: {{row: a}}\nspec: {{location: {{clli: {clli}}}}}\n"))
}

fn by_ann() -> WriteOptions {
    WriteOptions { author: Some("ann@desk".into()), message: "why not".into(), ..WriteOptions::default() }
}

fn put(kind: &str, name: &str, document: DocumentText) -> DocumentEdit {
    DocumentEdit::Put { kind: kind.into(), name: name.into(), document, if_match: None, if_none_match: false }
}

on_both_stores! {
    async fn document_is_created_read_updated_and_deleted(fixture: StoreFixture) {
        let a = fixture.replica().await;
        let client = &a.client;
        let created = client.put_document(&env(), "Rack", "r1", &rack("HSTN"), &by_ann()).await.unwrap();
        assert_eq!((created.design, created.changed), (Some(DesignRevision(1)), true));
        let read = client.document(&env(), "Rack", "r1", None).await.unwrap();
        assert_eq!(read.etag, created.etags[0]);
        assert_eq!((read.written[0].source.as_str(), read.written[0].file.as_str()), ("api", "Rack/r1.yaml"));
        assert_eq!(read.written[0].document["labels"], json!({"row": "a"}));
        assert_eq!(read.effective.unwrap()["location"]["clli"], "HSTN");

        // Writing the same document again is a no-op.
        let again = client.put_document(&env(), "Rack", "r1", &rack("HSTN"), &by_ann()).await.unwrap();
        assert_eq!((again.design, again.changed), (Some(DesignRevision(1)), false));

        // A JSON value is stored as YAML. It need not repeat the kind and name of the URL.
        let value = json!({"spec": {"location": {"clli": "DLLS"}}});
        let value = DocumentText::Json(value.as_object().unwrap().clone());
        let updated = client.put_document(&env(), "Rack", "r1", &value, &by_ann()).await.unwrap();
        assert_eq!(updated.design, Some(DesignRevision(2)));
        let read = client.document(&env(), "Rack", "r1", None).await.unwrap();
        assert_eq!(read.effective.unwrap()["location"]["clli"], "DLLS");
        // Earlier revisions can still be read.
        let before = client.document(&env(), "Rack", "r1", Some(DesignRevision(1))).await.unwrap();
        assert_eq!((before.etag, before.design), (created.etags[0].clone(), DesignRevision(1)));

        let deleted = client.delete_document(&env(), "Rack", "r1", &by_ann()).await.unwrap();
        assert_eq!((deleted.design, deleted.changed), (Some(DesignRevision(3)), true));
        let gone = refused(client.document(&env(), "Rack", "r1", None).await);
        assert_eq!((gone.code, gone.status), (ProblemCode::UnknownDocument, 404));
        assert_eq!(refused(client.delete_document(&env(), "Rack", "r1", &by_ann()).await).code, ProblemCode::UnknownDocument);

        let revisions = client.design_revisions(&env()).await.unwrap();
        let revisions: Vec<(u64, &str, &str)> =
            revisions.items.iter().map(|row| (row.design.0, row.author.as_str(), row.message.as_str())).collect();
        assert_eq!(revisions, [(3, "ann@desk", "why not"), (2, "ann@desk", "why not"), (1, "ann@desk", "why not")]);
        a.stop().await;
    }

    async fn failed_if_match_returns_the_current_document(fixture: StoreFixture) {
        let a = fixture.replica().await;
        let client = &a.client;
        let with = |expected: DocumentPrecondition| WriteOptions { expected, ..WriteOptions::default() };
        let put = |clli: &'static str, expected: DocumentPrecondition| async move {
            client.put_document(&env(), "Rack", "r1", &rack(clli), &with(expected)).await
        };
        let missing = refused(put("A", DocumentPrecondition::Etag("x".into())).await);
        assert_eq!((missing.code, missing.status, missing.current), (ProblemCode::NotAsExpected, 412, None));
        let first = put("A", DocumentPrecondition::Nothing).await.unwrap().etags[0].clone();
        assert_eq!(refused(put("B", DocumentPrecondition::Nothing).await).code, ProblemCode::NotAsExpected);
        let second = put("B", DocumentPrecondition::Etag(first.clone())).await.unwrap().etags[0].clone();
        let stale = refused(put("C", DocumentPrecondition::Etag(first.clone())).await);
        let current = stale.current.unwrap();
        assert_eq!(current["etag"], second.as_str());
        assert_eq!(current["written"][0]["document"]["spec"]["location"]["clli"], "B");
        let stale = client.delete_document(&env(), "Rack", "r1", &with(DocumentPrecondition::Etag(first))).await;
        assert_eq!(refused(stale).code, ProblemCode::NotAsExpected);
        client.delete_document(&env(), "Rack", "r1", &with(DocumentPrecondition::Etag(second))).await.unwrap();
        a.stop().await;
    }

    async fn changes_are_accepted_together_or_not_at_all(fixture: StoreFixture) {
        let a = fixture.replica().await;
        let profile = |name: &str, extends: &str| {
            put("HostProfile", name, yaml(&format!("kind: HostProfile\nname: {name}\nextends: [{extends}]\nspec: {{}}\n")))
        };
        let base = put("HostProfile", "base", yaml("kind: HostProfile\nname: base\nspec: {tags: [a]}\n"));
        let changes = |changes: Vec<DocumentEdit>, dry_run| DocumentChanges { changes, dry_run, ..DocumentChanges::default() };

        // A missing parent and a value of a wrong type: nothing is accepted, and both errors are reported.
        let bad = put("HostProfile", "bad", yaml("kind: HostProfile\nname: bad\nspec: {tags: 7}\n"));
        let problem = refused(
            a.client.change_documents(&env(), &changes(vec![base.clone(), profile("child", "nobody"), bad], false)).await,
        );
        assert_eq!((problem.code, problem.status), (ProblemCode::DesignRefused, 422));
        let errors: Vec<&str> = problem
            .findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .map(|finding| finding.location.as_ref().unwrap().file.as_str())
            .collect();
        assert_eq!(errors, ["HostProfile/bad.yaml", "HostProfile/child.yaml"]);
        assert!(problem.findings.iter().all(|finding| finding.location.as_ref().is_some_and(|at| at.span.is_some()) && finding.code.as_str().starts_with('M')));
        assert!(a.client.design(&env()).await.is_err(), "there is not even an environment");

        let both = vec![base, profile("child", "base")];
        let dry = a.client.change_documents(&env(), &changes(both.clone(), true)).await.unwrap();
        assert_eq!((dry.design, dry.changed), (None, false));
        let taken = a.client.change_documents(&env(), &changes(both, false)).await.unwrap();
        assert_eq!((taken.design, taken.etags.len()), (Some(DesignRevision(1)), 2));

        // Deleting a document that another one extends is refused, and so is a change that expects another head revision.
        let refusal = refused(a.client.delete_document(&env(), "HostProfile", "base", &by_ann()).await);
        assert_eq!(refusal.code, ProblemCode::DesignRefused);
        let late = DocumentChanges { head: Some(DesignRevision(7)), ..changes(vec![profile("other", "base")], false) };
        assert_eq!(refused(a.client.change_documents(&env(), &late).await).code, ProblemCode::NotAsExpected);
        assert_eq!(a.client.design(&env()).await.unwrap().head, Some(DesignRevision(1)));
        a.stop().await;
    }

    async fn unknown_kinds_are_checked_by_their_schema(fixture: StoreFixture) {
        let a = fixture.replica().await;
        let text = "kind: promenade/Docker/v1\nname: docker\nspec: {config: {live-restore: true}}\n";
        a.client.put_document(&env(), "promenade/Docker/v1", "docker", &yaml(text), &by_ann()).await.unwrap();
        let read = a.client.document(&env(), "promenade/Docker/v1", "docker", None).await.unwrap();
        assert_eq!(read.written[0].document["spec"]["config"]["live-restore"], true);
        assert_eq!(read.written[0].file, "promenade%2FDocker%2Fv1/docker.yaml");

        // A plain word is a kind once there is a schema for it.
        let ticket = |number: &str| yaml(&format!("kind: Ticket\nname: t1\nspec: {{number: {number}}}\n"));
        let unknown = refused(a.client.put_document(&env(), "Ticket", "t1", &ticket("7"), &by_ann()).await);
        assert_eq!(unknown.code, ProblemCode::DesignRefused);
        let schema = "kind: Schema\nname: Ticket\nspec: {type: object, properties: {number: {type: integer}}}\n";
        a.client.put_document(&env(), "Schema", "Ticket", &yaml(schema), &by_ann()).await.unwrap();
        a.client.put_document(&env(), "Ticket", "t1", &ticket("7"), &by_ann()).await.unwrap();
        a.stop().await;
    }

    async fn every_kind_has_a_schema(fixture: StoreFixture) {
        let a = fixture.replica().await;
        for row in a.client.schemas().await.unwrap().items {
            let schema = a.client.schema(&row.kind).await.unwrap();
            assert!(schema.is_object() && row.url == format!("/v1/schemas/{}", row.kind), "{schema}");
        }
        assert_eq!(refused(a.client.schema("Nod").await).code, ProblemCode::UnknownKind);
        a.stop().await;
    }

    async fn document_that_does_not_match_its_url_is_refused(fixture: StoreFixture) {
        let a = fixture.replica().await;
        for (text, says) in [
            ("kind: Rack\nname: r2\nspec: {}\n", "is Rack r2"),
            ("kind: Region\nname: r1\nspec: {}\n", "is Region r1"),
            ("kind: Rack\nname: r1\nspec: {}\n---\nkind: Rack\nname: r2\nspec: {}\n", "is 2 documents"),
        ] {
            let refusal = refused(a.client.put_document(&env(), "Rack", "r1", &yaml(text), &by_ann()).await);
            assert!(refusal.detail.contains(says), "{refusal:?}");
            assert_eq!(refusal.code, ProblemCode::InvalidRequest);
        }
        let http = crate::fixture::http();
        let url = a.at("/documents/Rack/r1");
        for (media, body, status) in [
            ("text/plain", "kind: Rack", 400),
            ("application/json", "[1]", 400),
            (YAML, "a: [", 422),
            (YAML, "", 422),
        ] {
            let answer = http.put(&url).header("content-type", media).body(body).send().await.unwrap();
            assert_eq!(answer.status().as_u16(), status, "{media} {body}");
            let problem: muster_wire::problem::Problem = answer.json().await.unwrap();
            assert!(problem.request_id.is_some());
        }
        a.stop().await;
    }

    async fn directory_documents_are_overlaid_not_deleted(fixture: StoreFixture) {
        let a = fixture.replica().await;
        a.apply(site(2)).await.unwrap();
        let refusal = refused(a.client.delete_document(&env(), "HostProfile", "base", &by_ann()).await);
        assert_eq!((refusal.code, refusal.status), (ProblemCode::Conflict, 409));
        assert!(refusal.detail.contains("\"site\"") && refusal.detail.contains("profiles.yaml:2"), "{}", refusal.detail);
        assert!(refusal.hint.unwrap().contains("overlay"));
        let generated = refused(a.client.delete_document(&env(), "Node", "web1", &by_ann()).await);
        assert_eq!(generated.code, ProblemCode::Conflict);

        let overlay = "kind: HostProfile\nname: base\noverlay: true\nspec: {owner_data: {team: web}}\n";
        a.client.put_document(&env(), "HostProfile", "base", &yaml(overlay), &by_ann()).await.unwrap();
        let read = a.client.document(&env(), "HostProfile", "base", None).await.unwrap();
        let sources: Vec<&str> = read.written.iter().map(|written| written.source.as_str()).collect();
        assert_eq!(sources, ["site", "api"]);
        assert_eq!(read.effective.unwrap()["owner_data"]["team"], "web");

        // Applying the directory again replaces only its own documents.
        let applied = a.apply(site(2)).await.unwrap();
        let node = a.client.design_node(&env(), &"web1".parse().unwrap(), None, None).await.unwrap();
        assert_eq!((node.effective["owner_data"]["team"].as_str(), node.design), (Some("web"), applied.design));
        a.client.delete_document(&env(), "HostProfile", "base", &by_ann()).await.unwrap();
        let read = a.client.document(&env(), "HostProfile", "base", None).await.unwrap();
        assert_eq!(read.effective.unwrap()["owner_data"]["team"], "infra");
        a.stop().await;
    }

    async fn filters_select_documents(fixture: StoreFixture) {
        let a = fixture.replica().await;
        a.apply(site(2)).await.unwrap();
        a.client.put_document(&env(), "Rack", "r1", &rack("HSTN"), &by_ann()).await.unwrap();
        for (filter, names) in [
            ("kind=Node", &["Node db1", "Node web1", "Node web2"][..]),
            ("kind=Node role=web", &["Node web1", "Node web2"]),
            ("label.row=a", &["Rack r1"]),
            ("source=api", &["Rack r1"]),
            ("kind=HostProfile extends", &["HostProfile frontend"]),
            ("name=web*", &["Node web1", "Node web2"]),
            ("kind=Node role=web state!=validated", &["Node web1", "Node web2"]),
            ("kind=Node state=validated", &[]),
            ("state name!=db1", &["Node web1", "Node web2"]),
        ] {
            let page = a.client.documents(&env(), Some(filter), None).await.unwrap();
            let found: Vec<String> = page.items.iter().map(|row| format!("{} {}", row.kind, row.name)).collect();
            assert_eq!(found, names, "{filter}");
        }
        assert_eq!(a.client.documents(&env(), None, Some(DesignRevision(1))).await.unwrap().items.len(), 5);
        let refusal = refused(a.client.documents(&env(), Some("kinf=Node"), None).await);
        assert_eq!(refusal.code, ProblemCode::InvalidFilter);
        assert!(refusal.hint.as_ref().is_some_and(|hint| hint.contains("kind")), "{refusal:?}");
        a.stop().await;
    }
}
