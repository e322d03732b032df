//! What a request's session goes by.

use http::Method;
use serde_json::{Value, json};
use tandem_config::{AdminConfig, GatewayConfig};
use tandem_policies::{Rule, SessionHeader};
use tandem_wire::proto;
use tandem_wire::proto::FinishReason;

use crate::client::{Reply, get, request, send};
use crate::harness::{CHAT, Gateway, chat, config, eventually, pki, with, with_one_worker_and};
use crate::scripted_worker::{ScriptedWorker, welcome};

fn by_session(config: &mut GatewayConfig) {
    config.policy.prefill.choose = Rule::ConsistentHash;
    config.policy.decode.choose = Rule::ConsistentHash;
    config.policy.consistent_hash.load_factor = 0.0;
    config.admin = Some(AdminConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        key_hashes: Vec::new(),
        tls: None,
    });
}

/// Where the policy would send a session's request.
async fn home(gateway: &Gateway, session: &str) -> Value {
    let path = format!("/admin/choose?prompt_tokens=9&session={session}");
    get(gateway.admin(), &path).await.json()["decode"].clone()
}

async fn ask(gateway: &Gateway, header: &str, session: &'static str, key: &str) -> Reply {
    let body = with(chat(), json!({"prompt_cache_key": key})).to_string();
    let mut asked = request(Method::POST, CHAT, body);
    let header: http::HeaderName = header.parse().unwrap();
    asked.headers_mut().insert(header, session.parse().unwrap());
    send(gateway.address, asked).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sessions_requests_go_to_its_worker_by_the_header_before_all_else() {
    let pki = pki();
    let start = |name| ScriptedWorker::start(pki.path(), welcome(name, proto::Role::Both));
    let mut workers = [start("both-0"), start("both-1")];
    let addresses = workers.iter().map(|worker| worker.address).collect();
    let mut config = config(&pki, addresses);
    by_session(&mut config);
    let gateway = Gateway::start(config).await;
    eventually("two", async || {
        let path = "/admin/choose?prompt_tokens=9";
        get(gateway.admin(), path).await.json()["choice"]["decode"]["candidates"] == 2
    })
    .await;
    let sessions = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut served = [0, 0];
    for (n, session) in sessions.into_iter().enumerate() {
        let at = usize::from(home(&gateway, session).await == "both-1");
        // The field names the session of another worker.
        let key = sessions[(n + 1) % sessions.len()];
        let serve = async {
            let mut call = workers[at].call().await;
            call.start().await;
            call.finish("x", FinishReason::Stop).await;
        };
        let asked = ask(&gateway, "x-session-id", session, key);
        let (reply, ()) = tokio::join!(asked, serve);
        assert_eq!(reply.status, 200);
        served[at] += 1;
    }
    assert!(served[0] > 0 && served[1] > 0, "{served:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_that_names_no_session_is_refused_where_it_would_be_used() {
    let (_pki, gateway, mut worker) = with_one_worker_and(|config| {
        by_session(config);
        config.policy.session_header = SessionHeader::named("x-chat".into());
    })
    .await;
    let long: &'static str = "x".repeat(257).leak();
    let reply = ask(&gateway, "x-chat", long, "k").await;
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (400, "invalid_value".into())
    );
    assert_eq!(reply.error()["param"], "x-chat");
    let mut twice = request(Method::POST, CHAT, chat().to_string());
    for session in ["a", "b"] {
        twice
            .headers_mut()
            .append("x-chat", session.parse().unwrap());
    }
    assert_eq!(send(gateway.address, twice).await.status, 400);
    let serve = async {
        let mut call = worker.call().await;
        call.start().await;
        call.finish("x", FinishReason::Stop).await;
    };
    let (reply, ()) = tokio::join!(ask(&gateway, "x-session-id", long, "k"), serve);
    assert_eq!(reply.status, 200, "another header is nobody's business");
}
