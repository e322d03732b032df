//! The layers around every reply, from the outside in.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use tandem_config::HttpConfig;
use tower::{Service, ServiceBuilder};

use super::body::RequestBody;
use super::bounds::BoundsLayer;
use super::catch::CatchLayer;
use super::cors::CorsLayer;
use super::envelope::EnvelopeLayer;
use super::foreign::{ForeignLayer, Homes};
use super::http1::HeadLimits;
use super::observe::ObserveLayer;
use super::reply::Body;
use super::reply_headers::ReplyHeadersLayer;
use super::request_id::RequestIdLayer;
use super::room::BodyRoom;
use super::routes::Routes;
use super::trace_context::TraceLayer;
use crate::app::App;
use crate::auth::AuthLayer;

/// Replies to requests of every version of HTTP.
pub(crate) trait Answers:
    Service<
        Request<RequestBody>,
        Response = Response<Body>,
        Error = Infallible,
        Future: Send + 'static,
    > + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> Answers for S
where
    S: Service<Request<RequestBody>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
}

/// All of the gateway. `http3` is the port, where HTTP/3 is served; `loopback` says whether other machines
/// do not reach it.
pub(crate) fn answers(
    app: Arc<App>,
    config: &HttpConfig,
    http3: Option<u16>,
    loopback: bool,
) -> impl Answers {
    ServiceBuilder::new()
        .layer(RequestIdLayer)
        .layer(TraceLayer {
            spans: app.metrics.spans.clone(),
        })
        .layer(ObserveLayer {
            metrics: Arc::clone(&app.metrics),
        })
        .layer(ReplyHeadersLayer::new(http3))
        .layer(EnvelopeLayer)
        .layer(CatchLayer)
        .layer(CorsLayer::new(config.cors_origins.clone()))
        .layer(BoundsLayer {
            limits: head_limits(config),
            // One alone always fits.
            room: BodyRoom::new(config.max_bodies_bytes.max(app.max_body_bytes())),
        })
        .layer(ForeignLayer {
            gate: Arc::clone(&app.gate),
            homes: Arc::new(Homes::new(config, loopback)),
        })
        .layer(AuthLayer {
            gate: Arc::clone(&app.gate),
        })
        .service(Routes { app })
}

pub(crate) const fn head_limits(config: &HttpConfig) -> HeadLimits {
    HeadLimits {
        bytes: config.max_header_bytes,
        headers: config.max_headers,
        uri: config.max_uri_bytes,
    }
}
