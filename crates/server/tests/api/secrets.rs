//! Secrets are sealed: in the store, in backups and in logs there is no clear text, and only nodes in scope get the value.

use std::collections::BTreeMap;
use std::path::Path;

use muster_core::keys::Keys;
use muster_core::lookup::config_data::{Datum, DatumRecord, Layer, SECRET};
use muster_core::names::{DataKey, Role};
use muster_core::report::Report;
use muster_core::txn::{Op, Txn};
use muster_testkit::secret_search::SecretSearch;
use muster_testkit::wait::until;
use muster_wire::audit::AuditQuery;
use muster_wire::client::{ClientError, DatumPrecondition};
use muster_wire::data::{SetDatum, SetDatumResponse};
use muster_wire::problem::ProblemCode;
use muster_wire::sync::{SyncEvent, SyncOpen};
use serde_json::{Value, json};

use crate::fixture::{CapturedLog, Fixture, PASSED, http, next};

const NODES: [(&str, &str); 3] = [("db1", "db"), ("web1", "web"), ("web2", "web")];
/// The value, with characters that JSON escapes.
const PASSWORD: &str = "Tr0ub\"4dor&3-quite-long";
/// Text in the log of a run, which must be found where the value must not be.
const LOGGED: &str = "the configuration of the database has changed";

fn password() -> DataKey {
    DataKey::new("db::password").unwrap()
}

fn of_role(role: &str) -> Layer {
    Layer::Role { role: Role::new(role).unwrap() }
}

async fn set(fixture: &Fixture, layer: &Layer, value: &str) -> Result<SetDatumResponse, ClientError> {
    let set = SetDatum { value: json!(value), secret: true, message: None, force: false };
    fixture.client.set_datum(&fixture.env, (layer, &password()), &set, DatumPrecondition::Anything, "ann").await
}

/// Data of a node that connects without any state.
async fn data_of(fixture: &Fixture, name: &str) -> BTreeMap<DataKey, Datum> {
    loop {
        let mut stream = fixture.open(name, &SyncOpen::default()).await;
        // All streams end when the server has read other keys.
        while let Some(event) = stream.next().await.unwrap() {
            if let SyncEvent::Snapshot { snapshot, .. } = event {
                return snapshot.data;
            }
        }
    }
}

async fn stored(fixture: &Fixture, layer: &Layer) -> DatumRecord {
    let key = Keys::new(&fixture.env).datum(layer, &password());
    serde_json::from_slice(&fixture.store.get(&key).await.unwrap().unwrap().value).unwrap()
}

fn assert_hidden(what: &str, bytes: &[u8]) {
    SecretSearch::new(PASSWORD).assert_absent(what, bytes);
}

/// Looks for the value in all files below a directory. Returns the number of files, and of those that have the text of the log.
fn assert_hidden_in_files(dir: &Path) -> (usize, usize) {
    let logged = SecretSearch::new(LOGGED);
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let search = |entry: std::fs::DirEntry| {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            assert_hidden_in_files(&entry.path())
        } else if kind.is_file() {
            let bytes = std::fs::read(entry.path()).unwrap();
            assert_hidden(&entry.path().display().to_string(), &bytes);
            (1, usize::from(logged.find(&bytes).is_some()))
        } else {
            (0, 0)
        }
    };
    entries.map(search).fold((0, 0), |(files, logs), (file, log)| (files + file, logs + log))
}

#[tokio::test(flavor = "multi_thread")]
async fn value_is_in_no_file_key_answer_log_or_backup() {
    let log = CapturedLog::start();
    let fixture = Fixture::start(&NODES).await;
    let db = of_role("db");
    let first = set(&fixture, &db, PASSWORD).await.unwrap();
    assert!(first.changed && first.datum.value == json!(SECRET));
    let before = stored(&fixture, &db).await;
    // The same value again is a no-op, although each seal is another text.
    let again = set(&fixture, &db, PASSWORD).await.unwrap();
    assert!(!again.changed);
    assert_eq!(stored(&fixture, &db).await, before);

    assert_eq!(data_of(&fixture, "db1").await[&password()].value, json!(PASSWORD));
    for outside in ["web1", "web2"] {
        assert_eq!(data_of(&fixture, outside).await.get(&password()), None);
    }
    // The node that has the secret reports, with a log.
    let mut stream = fixture.open("db1", &SyncOpen::default()).await;
    let SyncEvent::Hello { incarnation, .. } = next(&mut stream).await else { panic!("no hello") };
    let report = fixture.report("db1", incarnation, 1, PASSED);
    fixture.send(&Report { log: format!("{LOGGED}: password=[secret]\n"), ..report }).await;
    let backup = http().get(fixture.url(&format!("/v1/envs/{}/backup", fixture.env))).send().await.unwrap();
    assert!(backup.status().is_success());
    let backup = backup.bytes().await.unwrap();
    assert_hidden("the backup", &backup);
    assert!(SecretSearch::new(LOGGED).find(&backup).is_some(), "the backup has the log");
    for kv in fixture.store.range("/muster/", None).await.unwrap().kvs {
        assert_hidden(&kv.key, &kv.value);
    }
    let audit = fixture.client.audit(None, &AuditQuery::default()).await.unwrap();
    assert_hidden("the audit", serde_json::to_string(&audit).unwrap().as_bytes());
    assert_hidden("the status", serde_json::to_string(&fixture.client.secrets().await.unwrap()).unwrap().as_bytes());
    let dir = fixture.stop().await;
    let (files, logs) = assert_hidden_in_files(dir.path());
    assert!(files > 3 && logs > 0, "{files} files, {logs} with the log");
    let log = log.bytes();
    let requests = SecretSearch::new("/v1/envs/test/data/db::password");
    assert!(requests.find(&log).is_some(), "the server's log is captured");
    assert_hidden("the server's log", &log);
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_value_does_not_open_at_another_key() {
    let fixture = Fixture::start(&NODES).await;
    set(&fixture, &of_role("db"), PASSWORD).await.unwrap();
    let keys = Keys::new(&fixture.env);
    let copied = stored(&fixture, &of_role("db")).await;
    let op = Op::put_json(keys.datum(&of_role("web"), &password()), &copied).unwrap();
    fixture.store.commit(Txn::new().op(op)).await.unwrap();
    fixture.wait_for("the copy is seen", |fleet| fleet.data().get(&of_role("web"), &password()).is_some()).await;
    let datum = data_of(&fixture, "web1").await.remove(&password()).unwrap();
    assert_eq!(datum.value, Value::Null);
    assert!(datum.unavailable.unwrap().starts_with("it was changed, or copied from another place"));
    let unopened = fixture.client.secrets().await.unwrap().unopened;
    assert_eq!((unopened.len(), unopened[0].layer.clone()), (1, of_role("web")));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_secrets_of_an_older_server_are_sealed_and_audited() {
    let fixture = Fixture::start(&NODES).await;
    let key = Keys::new(&fixture.env).datum(&Layer::Global, &password());
    let plain = json!({"value": PASSWORD, "secret": true, "by": "ann", "at": "2026-11-15T10:00:00Z"});
    fixture.store.commit(Txn::new().op(Op::put(key.clone(), plain.to_string()))).await.unwrap();
    let sealed = |fleet: &muster_core::fleet::Fleet| {
        fleet.data().get(&Layer::Global, &password()).is_some_and(|(datum, _)| datum.sealed().is_some())
    };
    fixture.wait_for("it is sealed", sealed).await;
    assert_hidden("the key", &fixture.store.get(&key).await.unwrap().unwrap().value);
    let record = stored(&fixture, &Layer::Global).await;
    assert_eq!((record.by.as_str(), record.secret), ("ann", true));
    assert_eq!(data_of(&fixture, "web1").await[&password()].value, json!(PASSWORD));
    let audit = fixture.client.audit(None, &AuditQuery::default()).await.unwrap();
    let found = audit.items.iter().find(|record| record.action == "seal_secrets").unwrap();
    assert!(found.changes[0].key.ends_with("data/global/db::password"), "{}", found.changes[0].key);
    assert_hidden("the audit", serde_json::to_string(&audit).unwrap().as_bytes());
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_seals_all_again_and_wakes_no_node() {
    let fixture = Fixture::start(&NODES).await;
    let db = of_role("db");
    set(&fixture, &db, PASSWORD).await.unwrap();
    for number in 0..50 {
        let (key, set) = (
            DataKey::new(format!("key_{number}")).unwrap(),
            SetDatum { value: json!(number), secret: true, message: None, force: false },
        );
        let client = &fixture.client;
        client.set_datum(&fixture.env, (&Layer::Global, &key), &set, DatumPrecondition::Anything, "ann").await.unwrap();
    }
    let (tag, first) = (data_of(&fixture, "db1").await[&password()].tag(), stored(&fixture, &db).await);
    let rotated = fixture.client.rotate_secrets("ann").await.unwrap();
    let [new, old] = &rotated.status.keys[..] else { panic!("{rotated:?}") };
    assert_eq!((Some(&new.id), new.seals, new.secrets), (rotated.made.as_ref(), true, 51));
    assert_eq!((&old.id, old.seals, old.secrets), (&first.sealed().unwrap().key, false, 0));
    assert_eq!((rotated.status.remaining, rotated.status.problem), (0, None));
    let datum = data_of(&fixture, "db1").await.remove(&password()).unwrap();
    assert_eq!((datum.tag(), datum.value), (tag, json!(PASSWORD)));

    // A value of the old key, as a restore or an interrupted rotation leaves it, is sealed again and makes no key.
    let op = Op::put_json(Keys::new(&fixture.env).datum(&db, &password()), &first).unwrap();
    fixture.store.commit(Txn::new().op(op)).await.unwrap();
    let at_new = |fleet: &muster_core::fleet::Fleet| {
        let datum = fleet.data().get(&db, &password());
        datum.is_some_and(|(datum, _)| datum.sealed().is_some_and(|sealed| sealed.key == new.id))
    };
    fixture.wait_for("it is sealed again", at_new).await;
    assert_eq!(fixture.client.secrets().await.unwrap().keys.len(), 2);
    let audit = fixture.client.audit(None, &AuditQuery::default()).await.unwrap();
    let rotation = audit.items.iter().find(|record| record.action == "rotate_secrets").unwrap();
    assert!(rotation.why.as_ref().unwrap().contains(new.id.as_str()));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_without_their_key_are_named_and_come_back() {
    let fixture = Fixture::start(&NODES).await;
    set(&fixture, &of_role("db"), PASSWORD).await.unwrap();
    let dir = fixture.stop().await;
    let (file, away) = (dir.path().join("secrets.key"), dir.path().join("kept.key"));
    std::fs::rename(&file, &away).unwrap();

    let fixture = Fixture::start_in(dir, &NODES, Default::default()).await;
    assert!(!file.exists(), "no other key is made");
    let datum = data_of(&fixture, "db1").await.remove(&password()).unwrap();
    assert_eq!((datum.value.clone(), datum.tag().as_str()), (Value::Null, "-"));
    assert!(datum.unavailable.unwrap().starts_with("the server does not have the key"));
    // The rest of the fleet is not concerned.
    assert_eq!(data_of(&fixture, "web1").await.get(&password()), None);
    let refused = set(&fixture, &Layer::Global, "x").await.unwrap_err();
    assert_eq!(refused.problem().unwrap().code, ProblemCode::SecretsUnavailable);
    let status = fixture.client.secrets().await.unwrap();
    assert_eq!((status.keys.len(), status.unopened.len()), (0, 1));
    assert!(status.problem.unwrap().contains("restore the file of --secrets-key"));

    std::fs::rename(&away, &file).unwrap();
    until("the file was read", || !fixture.app.view.fleets().is_empty() && file.exists()).await;
    let mut data = data_of(&fixture, "db1").await;
    while data[&password()].unavailable.is_some() {
        tokio::task::yield_now().await;
        data = data_of(&fixture, "db1").await;
    }
    assert_eq!(data[&password()].value, json!(PASSWORD));
    fixture.stop().await;
}
