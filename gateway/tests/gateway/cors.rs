//! Scripts of browsers' pages.

use http::Method;
use tandem_config::{CorsOrigins, GatewayConfig};

use crate::client::{Reply, request, send};
use crate::harness::{CHAT, Gateway, with_one_worker, with_one_worker_and};

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
    assert_eq!(reply.status, 405);
    assert_eq!(reply.header("access-control-allow-origin"), None);
}
