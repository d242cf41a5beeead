//! People: users, roles, tokens, and the audit of what they do.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use muster_core::audit::{self, Actor, AuditProblem, AuditRecord, AuditValue, SealedRecord, SegmentRecord};
use muster_core::keys::ServerKey;
use muster_core::lookup::config_data::Layer;
use muster_core::names::{DataKey, EnvName, UserName};
use muster_core::node::policy::NodePolicy;
use muster_core::txn::{Op, Txn};
use muster_core::user::{RoleScope, UserRole, UserRoles};
use muster_identity::tls::pinned_config;
use muster_identity::token::UserToken;
use muster_server::Blobs;
use muster_wire::audit::{AuditQuery, VerifyAuditQuery};
use muster_wire::client::{Client, ClientError, Credentials, DatumPrecondition, RolloutRef, RolloutVerb};
use muster_wire::data::SetDatum;
use muster_wire::policy::SetPolicy;
use muster_wire::problem::ProblemCode;
use muster_wire::rollout::OperateRequest;
use muster_wire::token::Token;
use muster_wire::users::{ChangeUser, CreateUser, CreateUserToken, WhoAmI};
use serde_json::json;

use muster_testkit::wait::{until, until_changed};

use crate::fixture::{Fixture, http};

fn user(name: &str) -> UserName {
    UserName::new(name).unwrap()
}

fn scope(text: &str) -> RoleScope {
    RoleScope::try_from(text.to_owned()).unwrap()
}

fn code(error: &ClientError) -> ProblemCode {
    error.problem().unwrap_or_else(|| panic!("{error:?}")).code
}

async fn make_user(fixture: &Fixture, name: &str, roles: &[(&str, UserRole)]) -> String {
    let roles = UserRoles(roles.iter().map(|(of, role)| (scope(of), *role)).collect());
    let create = CreateUser { name: user(name), roles, identity: None };
    fixture.client.create_user(&create, "root@host").await.unwrap();
    make_token(&fixture.client, name).await
}

async fn make_token(client: &Client, name: &str) -> String {
    let request = CreateUserToken { seconds: 24 * 3600, note: "laptop".to_owned() };
    client.create_user_token(&user(name), &request).await.unwrap().token
}

/// A client of the TLS port that presents a token, and knows the server by the pin of the token.
fn client(fixture: &Fixture, token: &str) -> Client {
    let parsed: UserToken = token.parse().unwrap();
    let (tls, _) = pinned_config(parsed.pin.unwrap()).unwrap();
    let credentials = Credentials { token: Some(Token::new(token).unwrap()), tls: Some(tls) };
    Client::with_credentials(&fixture.url("").replace("http://", "https://"), &credentials).unwrap()
}

async fn set(client: &Client, env: &EnvName, key: &str, value: &str, secret: bool) -> Result<(), ClientError> {
    let set = SetDatum { value: json!(value), secret, message: Some("for the test".to_owned()), force: false };
    let key = DataKey::new(key).unwrap();
    client.set_datum(env, (&Layer::Global, &key), &set, DatumPrecondition::Anything, "eve").await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_decide_what_a_user_may_do() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let env = &fixture.env;
    let viewer = client(&fixture, &make_user(&fixture, "vera", &[("test", UserRole::Viewer)]).await);
    let operator = client(&fixture, &make_user(&fixture, "otto", &[("test", UserRole::Operator)]).await);
    let stranger = client(&fixture, &make_user(&fixture, "sam", &[("other", UserRole::Admin)]).await);
    let admin = client(&fixture, &make_user(&fixture, "ada", &[("*", UserRole::Admin)]).await);

    assert_eq!(viewer.nodes(env).await.unwrap().items.len(), 1);
    let refused = set(&viewer, env, "a", "1", false).await.unwrap_err();
    assert_eq!(code(&refused), ProblemCode::Forbidden);
    let text = refused.problem().unwrap();
    assert_eq!(text.detail, format!("vera may not do this: it needs the role operator for the environment {env}"));
    assert!(text.hint.as_deref().unwrap().contains("muster user role vera operator"), "{text:?}");
    set(&operator, env, "a", "1", false).await.unwrap();
    assert_eq!(code(&operator.users().await.unwrap_err()), ProblemCode::Forbidden);
    assert_eq!(code(&stranger.nodes(env).await.unwrap_err()), ProblemCode::Forbidden);
    assert_eq!(stranger.environments().await.unwrap().items.len(), 0, "only environments of the user");
    assert_eq!(viewer.environments().await.unwrap().items.len(), 1);
    let users: Vec<String> = admin.users().await.unwrap().items.iter().map(|row| row.name.to_string()).collect();
    assert_eq!(users, ["ada", "otto", "sam", "vera"]);

    let WhoAmI::User { user: me, .. } = viewer.who_am_i().await.unwrap() else { panic!("not a user") };
    assert_eq!((me.name.as_str(), me.tokens[0].note.as_str()), ("vera", "laptop"));
    assert_eq!(fixture.client.who_am_i().await.unwrap(), WhoAmI::Administrator);

    // A change of the roles counts for the next request.
    let change = ChangeUser { roles: [(scope("test"), None)].into(), ..ChangeUser::default() };
    admin.change_user(&user("vera"), &change, "").await.unwrap();
    assert_eq!(code(&viewer.nodes(env).await.unwrap_err()), ProblemCode::Forbidden);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_retire_and_approvers_promote() {
    let fixture = Fixture::start(&[("web1", "web"), ("web2", "web")]).await;
    let env = &fixture.env;
    let viewer = client(&fixture, &make_user(&fixture, "vera", &[("test", UserRole::Viewer)]).await);
    let operator = client(&fixture, &make_user(&fixture, "otto", &[("test", UserRole::Operator)]).await);
    let approver = client(&fixture, &make_user(&fixture, "anna", &[("test", UserRole::Approver)]).await);
    let refusal = |result: Result<(), ClientError>| result.err().map(|error| code(&error));

    let retire = SetPolicy { policy: NodePolicy::Retired, reason: "old".into() };
    let set = async |by: &Client, node: &str| by.set_policy(env, node, &retire, "").await.map(drop);
    assert_eq!(refusal(set(&viewer, "web1").await), Some(ProblemCode::Forbidden));
    assert_eq!(refusal(set(&operator, "web1").await), None);
    assert_eq!(refusal(set(&approver, "web2").await), None, "an approver is an operator, too");
    let end = async |by: &Client| by.end_policy(env, "web1", NodePolicy::Retired, "").await.map(drop);
    assert_eq!(refusal(end(&viewer).await), Some(ProblemCode::Forbidden));
    assert_eq!(refusal(end(&operator).await), None);

    // Who may send the command learns that there is no rollout.
    let send = async |by: &Client, verb| {
        by.operate_rollout(env, RolloutRef::Active, verb, &OperateRequest::default()).await.map(drop)
    };
    for verb in [RolloutVerb::Promote, RolloutVerb::Skip] {
        assert_eq!(refusal(send(&viewer, verb).await), Some(ProblemCode::Forbidden), "{verb:?}");
        assert_eq!(refusal(send(&operator, verb).await), Some(ProblemCode::Forbidden), "{verb:?}");
        let answered = refusal(send(&approver, verb).await);
        assert!(answered.is_some_and(|code| code != ProblemCode::Forbidden), "{verb:?} {answered:?}");
    }
    let answered = refusal(send(&operator, RolloutVerb::Pause).await);
    assert!(answered.is_some_and(|code| code != ProblemCode::Forbidden), "{answered:?}");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_end_by_time_revocation_and_disabled_users() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let env = &fixture.env;
    let text = make_user(&fixture, "ann", &[("test", UserRole::Viewer)]).await;
    let ann = client(&fixture, &text);
    assert!(text.starts_with("muster_user_"));
    assert!(ann.nodes(env).await.is_ok());

    // For oneself, and not for others.
    let second = make_token(&ann, "ann").await;
    let other = ann.create_user_token(&user("root"), &CreateUserToken { seconds: 60, note: String::new() }).await;
    assert_eq!(code(&other.unwrap_err()), ProblemCode::Forbidden);
    let long = CreateUserToken { seconds: 31 * 24 * 3600, note: String::new() };
    assert_eq!(code(&ann.create_user_token(&user("ann"), &long).await.unwrap_err()), ProblemCode::InvalidRequest);

    let parsed: UserToken = text.parse().unwrap();
    ann.revoke_user_token(&user("ann"), parsed.id()).await.unwrap();
    assert_eq!(code(&ann.nodes(env).await.unwrap_err()), ProblemCode::Unauthenticated);
    let ann = client(&fixture, &second);
    assert!(ann.nodes(env).await.is_ok());
    let truncated = &second[..second.len() - 70];
    let wrong = format!("Bearer {truncated}");
    let answer = http().get(fixture.url("/v1/envs")).header("authorization", wrong).send().await.unwrap();
    assert_eq!(answer.status(), 401);

    let disable =
        |disabled| ChangeUser { disabled: Some(disabled), reason: "left".to_owned(), ..ChangeUser::default() };
    fixture.client.change_user(&user("ann"), &disable(true), "root").await.unwrap();
    let refused = ann.nodes(env).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().detail, "the user ann is disabled");
    fixture.client.change_user(&user("ann"), &disable(false), "root").await.unwrap();
    assert!(ann.nodes(env).await.is_ok());
    fixture.hours.store(25, Ordering::Relaxed);
    let refused = ann.nodes(env).await.unwrap_err();
    assert!(refused.problem().unwrap().detail.starts_with("the token expired at "), "{refused:?}");

    // Neither the secret nor its hash are in a list.
    let listed = serde_json::to_string(&fixture.client.users().await.unwrap()).unwrap();
    assert!(!listed.contains("hash") && !listed.contains(text.split('_').nth(3).unwrap()), "{listed}");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn address_with_wrong_tokens_has_to_wait() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let text = make_user(&fixture, "ann", &[("test", UserRole::Viewer)]).await;
    let get = async |token: &str| {
        let request = http().get(fixture.url("/v1/whoami")).header("authorization", format!("Bearer {token}"));
        request.send().await.unwrap().status().as_u16()
    };
    // Every digit is another one: a secret without a certain digit would stay as it is.
    let (id, secret) = text.split_at(text.match_indices('_').nth(2).unwrap().0);
    let other = |digit: char| {
        if digit == '0' {
            '1'
        } else if digit.is_ascii_hexdigit() {
            '0'
        } else {
            digit
        }
    };
    let wrong = format!("{id}{}", secret.chars().map(other).collect::<String>());
    let mut answers = Vec::new();
    for _ in 0..12 {
        answers.push(get(&wrong).await);
    }
    assert_eq!(answers[..10], [401; 10]);
    assert_eq!(answers[10..], [429; 2]);
    assert_eq!(get(&text).await, 200, "a valid token is accepted");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_recorded_with_their_origin() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let env = &fixture.env;
    let otto = client(&fixture, &make_user(&fixture, "otto", &[("test", UserRole::Operator)]).await);
    set(&otto, env, "greeting", "hello", false).await.unwrap();
    set(&otto, env, "greeting", "hello", false).await.unwrap();
    set(&otto, env, "password", "geheim-7", true).await.unwrap();
    let by_otto = AuditQuery { by: Some("otto".to_owned()), ..AuditQuery::default() };
    let page = fixture.client.audit(None, &by_otto).await.unwrap();
    assert!(!page.damaged);
    let [first, second] = &page.items[..] else { panic!("an unchanged value is not a change: {:?}", page.items) };
    assert_eq!(first.actor, Actor::User { name: user("otto") });
    assert_eq!((first.action.as_str(), first.from.as_str()), ("set_datum", "127.0.0.1"));
    assert_eq!(first.changes[0].key, format!("{env}/data/global/greeting"));
    assert!(first.changes[0].before.is_none() && first.request.is_some());
    let Some(AuditValue::Value(value)) = &first.changes[0].after else { panic!("{first:?}") };
    assert_eq!((&value["value"], &value["by"]), (&json!("hello"), &json!("otto")));
    assert!(!serde_json::to_string(second).unwrap().contains("geheim-7"));

    // The user cannot take another name, and cannot see the audit of the whole server.
    assert_eq!(code(&otto.audit(None, &by_otto).await.unwrap_err()), ProblemCode::Forbidden);
    assert_eq!(otto.audit(Some(env), &by_otto).await.unwrap().items.len(), 2);
    let of_root = AuditQuery { by: Some("root@host".to_owned()), ..AuditQuery::default() };
    let made = fixture.client.audit(None, &of_root).await.unwrap().items;
    assert!(made.iter().any(|record| record.action == "create_user" && record.env.is_none()), "{made:?}");
    let everything = serde_json::to_string(&fixture.client.audit(None, &AuditQuery::default()).await.unwrap()).unwrap();
    assert!(!everything.contains("\"hash\""), "{everything}");

    // A follower gets the next record when it is made.
    let next = fixture.client.audit(None, &by_otto).await.unwrap().next;
    let following = AuditQuery { after: Some(next), wait: Some(30), ..by_otto };
    let (client, follow) = (fixture.client.clone(), following.clone());
    let follower = tokio::spawn(async move { client.audit(None, &follow).await });
    set(&otto, env, "greeting", "bye", false).await.unwrap();
    let followed = follower.await.unwrap().unwrap();
    assert_eq!(followed.items.len(), 1);
    assert!(followed.items[0].changes[0].before.is_some());
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_changes_form_one_chain() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let env = fixture.env.clone();
    let writes = (0..40).map(|n| {
        let (client, env) = (fixture.client.clone(), env.clone());
        tokio::spawn(async move { set(&client, &env, &format!("key{n}"), "x", false).await })
    });
    for write in writes.collect::<Vec<_>>() {
        write.await.unwrap().unwrap();
    }
    let verified = fixture.client.verify_audit(&VerifyAuditQuery::default()).await.unwrap();
    assert_eq!((verified.problems.len(), verified.records), (0, verified.last));
    assert!(verified.records >= 40);
    let hash = verified.hash.clone();
    set(&fixture.client, &env, "later", "x", false).await.unwrap();
    let again = fixture.client.verify_audit(&VerifyAuditQuery { hash }).await.unwrap();
    assert_eq!(again.problems, []);
    let unknown = VerifyAuditQuery { hash: Some("0".repeat(63)) };
    assert_eq!(fixture.client.verify_audit(&unknown).await.unwrap().problems, [AuditProblem::UnknownHash]);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_with_many_changes_has_several_records() {
    let names: Vec<String> = (1..=120).map(|n| format!("web{n}")).collect();
    let nodes: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "web")).collect();
    let fixture = Fixture::start(&nodes).await;
    fixture.client.destroy(&fixture.env, Some("root@host")).await.unwrap();
    let is_gone = || !fixture.app.view.fleets().get(&fixture.env).is_some_and(muster_core::fleet::Fleet::is_founded);
    until("the environment is destroyed", is_gone).await;
    let records = fixture.client.audit(None, &AuditQuery::default()).await.unwrap().items;
    let keys: BTreeSet<&str> =
        records.iter().flat_map(|record| &record.changes).map(|change| change.key.as_str()).collect();
    for name in &names {
        assert!(keys.contains(format!("{}/nodes/{name}", fixture.env).as_str()), "{name}: {keys:?}");
    }
    let verified = fixture.client.verify_audit(&VerifyAuditQuery::default()).await.unwrap();
    assert_eq!((verified.problems.len(), verified.records), (0, verified.last));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_that_was_edited_by_hand_is_found() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let env = &fixture.env;
    for n in 0..6 {
        set(&fixture.client, env, &format!("key{n}"), "x", false).await.unwrap();
    }
    let verified = fixture.client.verify_audit(&VerifyAuditQuery::default()).await.unwrap();
    assert_eq!(verified.problems, []);
    let last = verified.last;
    let key = |seq: u64| ServerKey::AuditRecord { seq }.text();
    let line = fixture.store.get(&key(last - 3)).await.unwrap().unwrap().value;
    let edited = String::from_utf8(line.to_vec()).unwrap().replacen("set_datum", "nothing", 1);
    let txn = Txn::new().op(Op::put(key(last - 3), edited)).op(Op::delete(key(last - 1)));
    fixture.store.commit(txn).await.unwrap();
    let found = fixture.client.verify_audit(&VerifyAuditQuery::default()).await.unwrap().problems;
    let expected = [AuditProblem::Changed { seq: last - 3 }, AuditProblem::Missing { first: last - 1, last: last - 1 }];
    assert_eq!(found, expected);
    assert!(fixture.client.audit(None, &AuditQuery::default()).await.unwrap().damaged);
    // The audit goes on.
    set(&fixture.client, env, "later", "x", false).await.unwrap();
    fixture.stop().await;
}

/// Records behind the last one, as other servers could have appended them.
async fn append_records(fixture: &Fixture, count: u64) {
    let verified = fixture.client.verify_audit(&VerifyAuditQuery::default()).await.unwrap();
    let template = fixture.client.audit(None, &AuditQuery::default()).await.unwrap().items.pop().unwrap();
    let mut previous = verified.hash.unwrap();
    let lines = (verified.last + 1..=verified.last + count).map(|seq| {
        let SealedRecord { line, hash } =
            AuditRecord { seq, previous: previous.clone(), ..template.clone() }.seal().unwrap();
        previous = hash;
        Op::put(ServerKey::AuditRecord { seq }.text(), line)
    });
    for ops in lines.collect::<Vec<_>>().chunks(100) {
        fixture.store.commit(Txn { guards: Vec::new(), ops: ops.to_vec() }).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_server_appends_behind_records_that_others_sealed() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let env = fixture.env.clone();
    // The last record that this server knows is among those that another server appends to, seals and deletes.
    set(&fixture.client, &env, "first", "x", false).await.unwrap();
    append_records(&fixture, 1_200).await;
    let mut lines = Vec::new();
    for seq in 1..=1_000 {
        let key = ServerKey::AuditRecord { seq }.text();
        let line = fixture.store.get(&key).await.unwrap().unwrap().value;
        lines.push((Op::delete(key), String::from_utf8(line.to_vec()).unwrap()));
    }
    let (record, hash) = audit::open(&lines.last().unwrap().1).unwrap();
    let text: String = lines.iter().flat_map(|(_, line)| [line.as_str(), "\n"]).collect();
    let digest = Blobs::digest(text.as_bytes());
    fixture.app.blobs.keep_durably([(digest.as_str(), text.as_bytes())]).unwrap();
    let segment = SegmentRecord { first: 1, last: 1_000, until: record.at, digest, hash };
    let put = Op::put_json(ServerKey::AuditSegment { first: 1 }.text(), &segment).unwrap();
    fixture.store.commit(Txn::new().op(put)).await.unwrap();
    for part in lines.chunks(100) {
        let ops = part.iter().map(|(delete, _)| delete.clone()).collect();
        fixture.store.commit(Txn { guards: Vec::new(), ops }).await.unwrap();
    }
    set(&fixture.client, &env, "second", "x", false).await.unwrap();
    let verified = fixture.client.verify_audit(&VerifyAuditQuery::default()).await.unwrap();
    assert_eq!((verified.problems.len(), verified.records), (0, verified.last), "{verified:?}");
    assert!(verified.last > 1_200);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_records_are_moved_into_a_segment() {
    let fixture = Fixture::start(&[("web1", "web")]).await;
    let env = fixture.env.clone();
    set(&fixture.client, &env, "first", "x", false).await.unwrap();
    append_records(&fixture, 2_000).await;
    set(&fixture.client, &env, "second", "x", false).await.unwrap();
    let view = fixture.app.view.clone();
    let segments = || view.server_records().segments().len();
    until_changed("a segment", view.subscribe(), || segments() == 1).await;
    // The records are deleted with the next append.
    set(&fixture.client, &env, "third", "x", false).await.unwrap();
    let before = fixture.client.verify_audit(&VerifyAuditQuery::default()).await.unwrap();
    assert_eq!((before.problems.len(), before.records), (0, before.last));
    until_changed("deleted records", view.subscribe(), || view.server_records().stored_audit() < 1_100).await;
    let verified = fixture.client.verify_audit(&VerifyAuditQuery::default()).await.unwrap();
    assert_eq!((verified.problems.len(), verified.records), (0, verified.last));

    // Pages read across the segment and the open records, in both directions.
    let all = AuditQuery { after: Some(990), limit: Some(20), ..AuditQuery::default() };
    let page = fixture.client.audit(None, &all).await.unwrap();
    let numbers: Vec<u64> = page.items.iter().map(|record| record.seq).collect();
    assert_eq!(numbers, (991..=1010).collect::<Vec<_>>());
    assert_eq!(page.next, 1010);
    let newest = fixture.client.audit(None, &AuditQuery { limit: Some(5), ..AuditQuery::default() }).await.unwrap();
    assert_eq!(newest.items.last().unwrap().seq, verified.last);

    // A sweep keeps the segment; a lost one is found.
    let digest = view.server_records().segments().values().next().unwrap().digest.clone();
    fixture.app.blobs.remove(&digest);
    let lost = fixture.client.verify_audit(&VerifyAuditQuery::default()).await.unwrap().problems;
    assert!(matches!(&lost[..], [AuditProblem::Segment { .. }]), "{lost:?}");
    fixture.stop().await;
}
