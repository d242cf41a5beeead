//! Destruction of an environment.

use muster_core::fleet::DestroyRecord;
use muster_core::txn::{Op, Txn};
use muster_wire::client::WriteOptions;
use muster_wire::design::DocumentText;
use muster_wire::problem::ProblemCode;

use crate::on_both_stores;
use crate::place::{Place, env, keys, refused, site};

/// Keys that remain of the environment.
async fn left(place: &Place) -> Vec<String> {
    let kvs = place.store.range(keys().prefix(), None).await.unwrap().kvs;
    kvs.into_iter().map(|kv| kv.key).filter(|key| !key.contains("/replicas/")).collect()
}

on_both_stores! {
    async fn destroyed_environment_can_be_created_again(place: Place) {
        let a = place.replica().await;
        a.apply(site(2)).await.unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        for query in ["", "?confirm=prod"] {
            let answer = http.delete(format!("{}/v1/envs/test{query}", a.url)).send().await.unwrap();
            assert_eq!(answer.status().as_u16(), 400);
        }
        assert_eq!(a.nodes().len(), 3);
        let destroyed = a.client.destroy(&env(), Some("ann")).await.unwrap();
        assert_eq!((destroyed.nodes, destroyed.gone), (3, true));
        assert_eq!(left(&place).await, Vec::<String>::new());
        assert_eq!(a.client.environments().await.unwrap().items, []);
        assert_eq!(refused(a.client.environment(&env()).await).code, ProblemCode::UnknownEnvironment);
        assert_eq!(refused(a.client.destroy(&env(), None).await).code, ProblemCode::UnknownEnvironment);
        // Revision numbers start again at 1.
        assert_eq!(a.apply(site(1)).await.unwrap().design.0, 1);
        assert_eq!(a.nodes(), ["db1", "web1"]);
        a.stop().await;
    }

    async fn interrupted_destroy_is_completed(place: Place) {
        let a = place.replica().await;
        a.apply(site(2)).await.unwrap();
        a.kill().await;
        let mark = DestroyRecord { since: "2026-11-15T10:00:00Z".parse().unwrap(), by: "ann".into() };
        place.store.commit(Txn::new().op(Op::put_json(keys().destroying(), &mark).unwrap())).await.unwrap();

        let b = place.replica().await;
        // b acts after the lease of the dead server has ended. Until then a write is refused with `Destroying`.
        let text = DocumentText::Yaml("kind: Region\nname: r1\nspec: {}\n".into());
        let put = b.client.put_document(&env(), "Region", "r1", &text, &WriteOptions::default()).await;
        let taken = match put {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.problem().unwrap().code, ProblemCode::Destroying);
                false
            }
        };
        // The lease of a may have just ended. Then b has destroyed the environment before this request.
        let gone = match b.client.destroy(&env(), None).await {
            Ok(destroyed) => destroyed.gone,
            Err(error) => error.problem().is_some_and(|problem| problem.code == ProblemCode::UnknownEnvironment),
        };
        assert!(taken || gone);
        assert_eq!(left(&place).await, Vec::<String>::new());
        b.stop().await;
    }
}
