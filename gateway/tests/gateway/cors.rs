//! Scripts of browsers' pages.

use http::Method;
use tandem_config::{CorsOrigins, GatewayConfig};

use crate::client::{Reply, request, send};
use crate::harness::{CHAT, Gateway, MESSAGES, chat, with_one_worker, with_one_worker_and};

const PAGE: &str = "https://chat.example";

async fn ask(gateway: &Gateway, method: Method, path: &str, headers: &[(&str, &str)]) -> Reply {
    let mut request = request(method, path, "");
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().unwrap();
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    send(gateway.address, request).await
}

async fn preflight(gateway: &Gateway, origin: &str) -> Reply {
    let wanted = "authorization,content-type,anthropic-version,x-stainless-os";
    let headers = [
        ("origin", origin),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", wanted),
    ];
    ask(gateway, Method::OPTIONS, CHAT, &headers).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_known_page_may_ask_and_no_other() {
    let (_pki, gateway, _worker) = with_one_worker_and(|config: &mut GatewayConfig| {
        config.http.cors_origins = CorsOrigins::These(vec![PAGE.into()]);
    })
    .await;
    let reply = preflight(&gateway, PAGE).await;
    assert_eq!((reply.status.as_u16(), reply.body.as_str()), (204, ""));
    assert_eq!(reply.header("access-control-allow-origin"), Some(PAGE));
    let allowed = reply.header("access-control-allow-headers").unwrap();
    for header in ["authorization", "anthropic-version", "x-stainless-os"] {
        assert!(allowed.contains(header), "{allowed}");
    }
    assert!(
        reply
            .header("access-control-allow-methods")
            .unwrap()
            .contains("POST")
    );
    assert!(reply.header("access-control-allow-credentials").is_none());
    assert!(reply.header("vary").unwrap().contains("origin"));

    for path in ["/health", "/nowhere"] {
        let reply = ask(&gateway, Method::GET, path, &[("origin", PAGE)]).await;
        assert_eq!(reply.header("access-control-allow-origin"), Some(PAGE));
        let exposed = reply.header("access-control-expose-headers").unwrap();
        for header in ["x-request-id", "retry-after", "traceparent"] {
            assert!(exposed.contains(header), "{exposed}");
        }
        assert!(reply.header("traceparent").is_some());
    }
    for origin in ["https://other.example", "null", "https://chat.example.evil"] {
        let reply = preflight(&gateway, origin).await;
        assert_eq!(
            reply.header("access-control-allow-origin"),
            None,
            "{origin}"
        );
        let reply = ask(&gateway, Method::GET, "/health", &[("origin", origin)]).await;
        assert_eq!(reply.status, 200);
        assert_eq!(
            reply.header("access-control-allow-origin"),
            None,
            "{origin}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_page_may_ask_where_it_is_said_and_none_by_default() {
    let (_pki, gateway, _worker) = with_one_worker_and(|config: &mut GatewayConfig| {
        config.http.cors_origins = CorsOrigins::Any;
    })
    .await;
    let reply = preflight(&gateway, PAGE).await;
    assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
    drop(gateway);

    let (_pki, gateway, _worker) = with_one_worker().await;
    let reply = preflight(&gateway, PAGE).await;
    assert_eq!(reply.status, 403);
    assert_eq!(reply.header("access-control-allow-origin"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_keys_a_page_of_another_site_has_a_browser_send_nothing() {
    let (_pki, gateway, _worker) = with_one_worker().await;
    let post = async |path: &str, headers: &[(&str, &str)]| {
        let mut request = request(Method::POST, path, chat().to_string());
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().unwrap();
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        send(gateway.address, request).await
    };
    // A form, or a script's text: a browser asks nobody before it sends them.
    let simple = [("origin", PAGE), ("content-type", "text/plain")];
    for (path, kind) in [(CHAT, "permission_error"), (MESSAGES, "permission_error")] {
        let reply = post(path, &simple).await;
        assert_eq!(reply.status, 403);
        let error = reply.json()["error"].clone();
        assert_eq!(error["type"], kind);
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains(
                "no page of https://chat.example: name the origin in [http] cors_origins"
            ),
            "{message}"
        );
    }
    let rebound = post(
        CHAT,
        &[("host", "evil.example"), ("origin", "http://evil.example")],
    )
    .await;
    assert_eq!(
        (rebound.status.as_u16(), rebound.code().as_str()),
        (403, "foreign_host")
    );
    let read = ask(
        &gateway,
        Method::GET,
        "/tandem/status",
        &[("host", "evil.example")],
    )
    .await;
    assert_eq!(read.status, 403);
    let probe = ask(&gateway, Method::GET, "/ready", &[("host", "evil.example")]).await;
    assert_eq!(probe.status, 200);
    // A page that some proxy serves beside the gateway, under one name.
    let mut own = request(Method::POST, "/tokenize", "{\"prompt\": \"a\"}");
    let here = "http://localhost".parse().unwrap();
    own.headers_mut().insert("origin", here);
    let own = send(gateway.address, own).await;
    assert_eq!(own.status, 200, "{}", own.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_says_that_it_is_no_json_is_refused() {
    let (_pki, gateway, _worker) = with_one_worker().await;
    let status = async |kind: Option<&str>| {
        let mut request = request(Method::POST, "/tokenize", "{\"prompt\": \"a\"}");
        request.headers_mut().remove("content-type");
        if let Some(kind) = kind {
            request
                .headers_mut()
                .insert("content-type", kind.parse().unwrap());
        }
        let reply = send(gateway.address, request).await;
        (reply.status.as_u16(), reply.body)
    };
    let json = [
        "application/json",
        "Application/JSON; charset=utf-8",
        "application/x-www-form-urlencoded",
        "application/vnd.a+json",
    ];
    for kind in json.map(Some).into_iter().chain([None]) {
        assert_eq!(status(kind).await.0, 200, "{kind:?}");
    }
    for kind in [
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/octet-stream",
    ] {
        let (code, body) = status(Some(kind)).await;
        assert_eq!(code, 415, "{kind}");
        assert!(body.contains("want application/json, or none."), "{body}");
    }
}
