//! What operators see and do.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tandem_config::{AdminConfig, ApiKey, GatewayConfig};
use tandem_wire::proto;
use tandem_wire::proto::FinishReason;
use tandem_wire::task::spawn;
use tokio::time::Instant;

use crate::client::{Reply, get, open, post, request, send};
use crate::harness::{CHAT, Gateway, chat, config, eventually, pki, with, with_one_worker_and};
use crate::scripted_worker::{ScriptedWorker, welcome};
use crate::security::with_key;

fn with_admin(config: &mut GatewayConfig) {
    config.admin = Some(AdminConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        key_hashes: Vec::new(),
        tls: None,
    });
}

async fn put(gateway: &Gateway, path: &str, body: &str) -> Reply {
    send(gateway.admin(), request(Method::PUT, path, body.to_owned())).await
}

async fn do_post(gateway: &Gateway, path: &str) -> Reply {
    post(gateway.admin(), path, &Value::Null).await
}

async fn see(gateway: &Gateway, path: &str) -> Value {
    get(gateway.admin(), path).await.json()
}

/// Longer than a request takes on a busy machine.
const PAUSE: Duration = Duration::from_secs(3);

/// A stream that has begun, under this name.
async fn begun(
    gateway: &Gateway,
    worker: &mut ScriptedWorker,
    name: &'static str,
) -> (crate::client::Stream, crate::scripted_worker::Call) {
    let body = with(chat(), json!({"stream": true})).to_string();
    let asked = with_key(request(Method::POST, CHAT, body), "x-request-id", name);
    let begin = async {
        let mut call = worker.call().await;
        call.start().await;
        call.token(1, "a").await;
        call
    };
    tokio::join!(open(gateway.address, asked), begin)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_seen_in_flight_and_explained_after() {
    let (_pki, gateway, mut worker) = with_one_worker_and(with_admin).await;
    let (mut stream, mut call) = begun(&gateway, &mut worker, "job-1").await;
    let requests = see(&gateway, "/admin/requests").await;
    let request = &requests["requests"][0];
    assert_eq!(request["request_id"], "job-1");
    assert_eq!(
        (&request["stage"], &request["tokens"]),
        (&json!("decode"), &json!(1))
    );
    assert_eq!(
        (&request["decode"], &request["tenant"]),
        (&json!("both-0"), &json!("anonymous"))
    );
    assert!(request["age_ms"].as_u64() >= request["stage_age_ms"].as_u64());
    assert!(!requests.to_string().contains("Hi"), "{requests}");
    let leases = see(&gateway, "/admin/leases").await;
    assert_eq!(leases["leases"][0]["request"], request["request"]);
    assert_eq!(leases["leases"][0]["pages"], 1);
    let workers = see(&gateway, "/admin/workers").await;
    assert_eq!(workers["workers"][0]["requests"], 1);
    assert_eq!(workers["workers"][0]["pages"]["total"], 64);
    assert_eq!(
        see(&gateway, "/admin/workers/both-0").await,
        workers["workers"][0]
    );

    call.finish("", FinishReason::Stop).await;
    assert_eq!(stream.rest().await.last().unwrap(), "[DONE]");
    gateway.at_rest().await;
    for name in ["job-1", request["request"].as_str().unwrap()] {
        let explained = see(&gateway, &format!("/admin/explain/{name}")).await;
        let steps = explained["steps"].as_array().unwrap();
        assert_eq!(steps[0]["decode"], "both-0");
        let why = steps[0]["why"].as_str().unwrap();
        assert!(why.contains("both-0 by least_loaded"), "{why}");
        assert_eq!(steps[1]["step"], "reserved");
        assert_eq!(steps.last().unwrap()["why"], "stop");
    }
    let text = get(gateway.admin(), "/metrics").await.body;
    assert!(
        text.contains("tandem_worker_drained{worker=\"both-0\"} 0"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_shown_with_its_labels_and_what_it_registered() {
    let pki = pki();
    let mut hello = welcome("both-0", proto::Role::Both);
    hello.labels.insert("rack".into(), "r7".into());
    let worker = ScriptedWorker::start(pki.path(), hello);
    let mut config = config(&pki, vec![worker.address]);
    with_admin(&mut config);
    let gateway = Gateway::start(config).await;
    gateway.ready().await;
    let worker = see(&gateway, "/admin/workers/both-0").await;
    assert_eq!(worker["labels"], json!({"rack": "r7"}));
    let capabilities = &worker["capabilities"];
    assert_eq!(
        (&capabilities["prefills"], &capabilities["decodes"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(capabilities["pages"], worker["pages"]["total"]);
    for key in ["context_length", "page_tokens", "kv_heads", "head_dim"] {
        assert!(capabilities[key].as_u64() > Some(0), "{key} {capabilities}");
    }
    assert_eq!(worker["measured"]["decode_step_us"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_choice_is_explained_with_all_candidates_and_who_was_none() {
    let pki = pki();
    let start = |name| ScriptedWorker::start(pki.path(), welcome(name, proto::Role::Both));
    let (mut first, second) = (start("both-0"), start("both-1"));
    let mut config = config(&pki, vec![first.address, second.address]);
    with_admin(&mut config);
    let gateway = Gateway::start(config).await;
    eventually("two", async || {
        see(&gateway, "/admin/choose?prompt_tokens=8").await["choice"]["decode"]["candidates"] == 2
    })
    .await;
    do_post(&gateway, "/admin/workers/both-1/drain").await;
    let (mut stream, mut call) = begun(&gateway, &mut first, "job-1").await;
    let running = see(&gateway, "/admin/explain/job-1").await;
    let stage = &running["steps"][0]["choice"]["decode"];
    assert_eq!(
        (&stage["rule"], &stage["candidates"]),
        (&json!("least_loaded"), &json!(1))
    );
    assert_eq!(stage["score"], "the higher the better");
    let shown = &stage["shown"][0];
    assert_eq!(
        (&shown["worker"], &shown["pages"]),
        (&json!("both-0"), &json!(64))
    );
    assert!(
        shown["score"].is_number() && shown["free_pages"].is_number(),
        "{shown}"
    );
    assert_eq!(
        stage["filtered_out"],
        json!([{"worker": "both-1", "why": "draining"}])
    );
    assert_eq!(running["steps"][0]["choice"]["local"], "role");
    // Were it to be placed now, it could go to the other one too.
    assert_eq!(running["now"]["no_pair"], Value::Null);
    do_post(&gateway, "/admin/workers/both-1/enable").await;
    let running = see(&gateway, "/admin/explain/job-1").await;
    assert_eq!(running["now"]["choice"]["decode"]["candidates"], 2);
    call.finish("", FinishReason::Stop).await;
    assert_eq!(stream.rest().await.last().unwrap(), "[DONE]");
    gateway.at_rest().await;
    let ended = see(&gateway, "/admin/explain/job-1").await;
    assert_eq!(ended["steps"][0]["choice"], running["steps"][0]["choice"]);
    assert_eq!(
        (&ended["stage"], &ended["outcome"], &ended["now"]),
        (&json!("ended"), &json!("stop"), &Value::Null)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policy_says_where_a_request_would_go_now_and_why_nowhere() {
    let (_pki, gateway, _worker) = with_one_worker_and(with_admin).await;
    let query = "prompt_tokens=100&new_tokens=20&class=default&session=a%20b";
    let chosen = see(&gateway, &format!("/admin/choose?{query}")).await;
    assert_eq!(chosen["decode"], "both-0");
    assert_eq!(
        chosen["asked"],
        json!({"prompt_tokens": 100, "new_tokens": 20, "class": "default"})
    );
    assert!(
        chosen["why"]
            .as_str()
            .unwrap()
            .starts_with("decode: both-0 by")
    );
    let large = see(&gateway, "/admin/choose?prompt_tokens=1000000").await;
    assert_eq!(large["no_pair"], "no decode worker has room now");
    assert_eq!(
        large["choice"]["decode"]["filtered"],
        json!({"no_room": 1}),
        "{large}"
    );
    for (query, code) in [
        ("", "missing_required_parameter"),
        ("prompt_tokens=0", "invalid_value"),
        ("prompt_tokens=x", "invalid_value"),
        ("prompt_tokens=1&class=gold", "invalid_value"),
        ("prompt_tokens=1&x=1", "unknown_parameter"),
    ] {
        let reply = get(gateway.admin(), &format!("/admin/choose?{query}")).await;
        assert_eq!(
            (reply.status.as_u16(), &*reply.code()),
            (400, code),
            "{query}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_worker_ends_what_it_has_and_gets_nothing_new() {
    let (_pki, gateway, mut worker) = with_one_worker_and(with_admin).await;
    let (mut stream, mut call) = begun(&gateway, &mut worker, "a").await;
    let reply = do_post(&gateway, "/admin/workers/both-0/drain").await;
    assert_eq!(
        reply.json(),
        json!({"worker": "both-0", "drained": true, "weight": 100, "requests": 1})
    );
    eventually("draining", async || {
        see(&gateway, "/admin/workers/both-0").await["state"] == "draining"
    })
    .await;
    assert_eq!(get(gateway.address, "/ready").await.status, 503);
    let reply = post(gateway.address, CHAT, &chat()).await;
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (503, "no_worker".into())
    );
    call.finish("b", FinishReason::Stop).await;
    assert_eq!(stream.rest().await.last().unwrap(), "[DONE]");
    eventually("drained", async || {
        see(&gateway, "/admin/workers/both-0").await["state"] == "drained"
    })
    .await;
    let drained = gateway
        .metric("tandem_worker_drained{worker=\"both-0\"}")
        .await;
    assert_eq!(drained, Some(1.0));
    do_post(&gateway, "/admin/workers/both-0/enable").await;
    gateway.ready().await;
    let (mut stream, mut call) = begun(&gateway, &mut worker, "b").await;
    call.finish("", FinishReason::Stop).await;
    assert_eq!(stream.rest().await.last().unwrap(), "[DONE]");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_is_a_json_error() {
    let (_pki, gateway, _worker) = with_one_worker_and(with_admin).await;
    let weight = "/admin/workers/both-0/weight";
    let reply = put(&gateway, weight, "{\"weight\": 50}").await;
    assert_eq!(reply.json()["weight"], 50);
    eventually("lighter", async || {
        see(&gateway, "/admin/workers/both-0").await["weight"] == 50
    })
    .await;
    let refused = [
        ("{\"weight\": 0}", "invalid_value"),
        ("{\"weight\": 1001}", "invalid_value"),
        ("{\"weight\": \"1\"}", "invalid_value"),
        ("{}", "missing_required_parameter"),
        ("{\"weight\": 1, \"x\": 2}", "unknown_parameter"),
        ("[]", "invalid_type"),
        ("{", "invalid_json"),
        ("", "invalid_json"),
    ];
    for (body, code) in refused {
        let reply = put(&gateway, weight, body).await;
        assert_eq!(
            (reply.status.as_u16(), &*reply.code()),
            (400, code),
            "{body}"
        );
    }
    let long = put(&gateway, weight, &" ".repeat(70 << 10)).await;
    assert_eq!(long.status, 413);
    for path in ["/admin/workers/nobody/drain", "/admin/workers/a%20b/enable"] {
        let reply = do_post(&gateway, path).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code()),
            (404, "worker_not_found".into())
        );
    }
    for (path, code) in [
        ("/admin/workers/nobody", "worker_not_found"),
        ("/admin/explain/nobody", "request_not_found"),
        ("/admin/config", "no_configuration_file"),
        ("/admin", "unknown_url"),
        ("/v1/models", "unknown_url"),
    ] {
        let reply = get(gateway.admin(), path).await;
        assert_eq!(
            (reply.status.as_u16(), &*reply.code()),
            (404, code),
            "{path}"
        );
    }
    for (method, path, allow) in [
        (Method::POST, "/admin/workers", "GET"),
        (Method::GET, "/admin/reload", "POST"),
        (Method::GET, "/admin/drain", "POST"),
        (Method::POST, weight, "PUT"),
        (Method::PUT, "/admin/workers/both-0/drain", "POST"),
    ] {
        let reply = send(gateway.admin(), request(method, path, "")).await;
        assert_eq!(
            (reply.status.as_u16(), reply.header("allow")),
            (405, Some(allow)),
            "{path}"
        );
    }
    // Clients have no part in it.
    assert_eq!(get(gateway.address, "/admin/workers").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_show_a_key_of_their_own() {
    let key = ApiKey::from_random([9; ApiKey::RANDOM_BYTES]);
    let hash = ApiKey::hash_of(key.reveal());
    let change = |config: &mut GatewayConfig| {
        with_admin(config);
        config.admin.as_mut().unwrap().key_hashes = vec![hash];
    };
    let (_pki, gateway, _worker) = with_one_worker_and(change).await;
    for path in ["/admin/workers", "/metrics", "/admin/drain", "/nowhere"] {
        let reply = get(gateway.admin(), path).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code()),
            (401, "invalid_api_key".into()),
            "{path}"
        );
    }
    for probe in ["/health", "/ready"] {
        assert_eq!(get(gateway.admin(), probe).await.status, 200, "{probe}");
    }
    let asked = request(Method::GET, "/admin/workers", "");
    let asked = with_key(asked, "authorization", &format!("Bearer {}", key.reveal()));
    assert_eq!(send(gateway.admin(), asked).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_ends_says_so_first_serves_on_and_ends_after_its_streams() {
    let change = |config: &mut GatewayConfig| {
        with_admin(config);
        config.drain_pause = PAUSE;
        config.drain_timeout = Duration::from_secs(5);
    };
    let (_pki, gateway, mut worker) = with_one_worker_and(change).await;
    let (mut stream, mut call) = begun(&gateway, &mut worker, "a").await;
    let asked = Instant::now();
    let reply = do_post(&gateway, "/admin/drain").await;
    assert_eq!(reply.json(), json!({"stopping": true, "in_flight": 1}));
    eventually("not ready", async || {
        get(gateway.address, "/ready").await.status == 503
    })
    .await;
    assert_eq!(
        get(gateway.address, "/ready").await.json()["stopping"],
        true
    );
    // Not ready is for those who choose among gateways: who comes is served.
    let (mut late, mut late_call) = begun(&gateway, &mut worker, "b").await;
    late_call.finish("", FinishReason::Stop).await;
    assert_eq!(late.rest().await.last().unwrap(), "[DONE]");
    assert!(asked.elapsed() < PAUSE, "too slow to tell");
    let (address, admin) = (gateway.address, gateway.admin());
    let end = spawn("end", gateway.ended());
    eventually("closed", async || {
        tokio::net::TcpStream::connect(address).await.is_err()
    })
    .await;
    assert!(asked.elapsed() >= PAUSE);
    // Operators still watch, and the stream goes on.
    let stopping = get(admin, "/metrics").await.body;
    assert!(stopping.contains("tandem_gateway_stopping 1"), "{stopping}");
    call.token(2, "b").await;
    call.finish("", FinishReason::Stop).await;
    assert_eq!(stream.rest().await.last().unwrap(), "[DONE]");
    end.join().await.expect("an end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_page_is_all_here_and_needs_no_key_itself() {
    let (_pki, gateway, _worker) = with_one_worker_and(|config| {
        with_admin(config);
        let admin = config.admin.as_mut().unwrap();
        admin.key_hashes = vec![ApiKey::hash_of("secret")];
    })
    .await;
    for (path, kind) in [
        ("/", "text/html"),
        ("/page.css", "text/css"),
        ("/page.js", "text/javascript"),
    ] {
        let reply = get(gateway.admin(), path).await;
        assert_eq!(reply.status, 200, "{path}");
        assert!(reply.header("content-type").unwrap().starts_with(kind));
        let policy = reply.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{policy}"
        );
        // Nothing is fetched from elsewhere; SVG's namespace is a name, not an address to fetch.
        let text = reply.body.replace("http://www.w3.org/2000/svg", "");
        assert!(!text.contains("//") || !text.contains("http"), "{path}");
    }
    let reply = do_post(&gateway, "/").await;
    assert_eq!(
        (reply.status.as_u16(), reply.header("allow")),
        (405, Some("GET, HEAD"))
    );
    assert_eq!(get(gateway.admin(), "/admin/recent").await.status, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_requests_are_told_with_their_stages_the_latest_first() {
    let (_pki, gateway, mut worker) = with_one_worker_and(with_admin).await;
    let (mut stream, mut call) = begun(&gateway, &mut worker, "job-1").await;
    call.finish("", FinishReason::Stop).await;
    while stream.event().await.is_some() {}
    let refused = post(
        gateway.address,
        CHAT,
        &with(chat(), json!({"temperature": 9})),
    )
    .await;
    assert_eq!(refused.status, 400);
    eventually("both ended", || async {
        see(&gateway, "/admin/recent").await["requests"]
            .as_array()
            .unwrap()
            .len()
            == 2
    })
    .await;
    let recent = see(&gateway, "/admin/recent").await;
    let [refused, answered] = recent["requests"].as_array().unwrap().as_slice() else {
        panic!("{recent}");
    };
    assert_eq!(
        (&answered["request_id"], &answered["outcome"]),
        (&json!("job-1"), &json!("stop"))
    );
    assert_eq!(
        (&answered["failed"], &answered["tokens"]),
        (&json!(false), &json!(1))
    );
    let stages = answered["stages"].as_object().unwrap();
    assert!(
        [
            "read",
            "queue",
            "lease",
            "prefill",
            "first_token",
            "decode",
            "end"
        ]
        .iter()
        .all(|stage| stages.contains_key(*stage)),
        "{stages:?}"
    );
    let sum: f64 = stages.values().map(|ms| ms.as_f64().unwrap()).sum();
    assert!((sum - answered["total_ms"].as_f64().unwrap()).abs() < 0.01);
    assert_eq!(
        (&refused["failed"], &refused["decode"]),
        (&json!(true), &Value::Null)
    );
}
