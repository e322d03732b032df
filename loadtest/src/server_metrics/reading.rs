//! One reading of a server's metrics.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::time::timeout;

use super::exposition::{Sample, parse};
use crate::endpoint::{Endpoint, HttpError, Target, Url};

/// Why metrics could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No thread.
    #[error("cannot start a thread: {0}")]
    Runtime(io::Error),
    /// What they are or are not.
    #[error("{url}: {problem}")]
    Unreadable {
        /// Where.
        url: String,
        /// In words.
        problem: String,
    },
}

/// A reading has its end after this.
const PATIENCE: Duration = Duration::from_secs(2);
/// More than a server has to say of itself.
const LONGEST_BODY: usize = 8 << 20;

/// Where metrics are read.
pub(super) struct Source {
    endpoint: Endpoint,
}

impl Source {
    /// `http://HOST[:PORT][/PATH]` or `https://...`; without a path `/metrics`. Does not connect yet.
    pub(super) async fn find(url: &str, target: &Target) -> Result<Self, ReadError> {
        let wrong = |problem: String| ReadError::Unreadable {
            url: url.to_owned(),
            problem,
        };
        let place = Url::exact(url, "/metrics")
            .ok_or_else(|| wrong("want a URL such as http://127.0.0.1:8080/metrics".to_owned()))?;
        let same = place.authority() == target.url.authority();
        let own = Target {
            key: target.key.clone().filter(|_| same),
            headers: match same {
                true => target.headers.clone(),
                false => Vec::new(),
            },
            http2: false,
            ca: target.ca.clone().filter(|_| place.is_secure()),
            url: place,
        };
        let endpoint = Endpoint::find(own).await;
        let endpoint = endpoint.map_err(|error| wrong(error.to_string()))?;
        Ok(Self { endpoint })
    }

    pub(super) fn url(&self) -> String {
        self.endpoint.target().url.to_string()
    }

    /// Reads once, with a deadline.
    pub(super) async fn read(&self) -> Result<Vec<Sample>, ReadError> {
        let wrong = |problem: String| ReadError::Unreadable {
            url: self.url(),
            problem,
        };
        match timeout(PATIENCE, self.ask()).await {
            Ok(Ok((status, html, body))) => samples(status, html, &body).map_err(wrong),
            Ok(Err(error)) => Err(wrong(error.to_string())),
            Err(_) => Err(wrong(format!("no answer within {} s", PATIENCE.as_secs()))),
        }
    }

    async fn ask(&self) -> Result<(StatusCode, bool, Vec<u8>), HttpError> {
        let mut headers = HeaderMap::new();
        let text = HeaderValue::from_static("text/plain;version=0.0.4");
        headers.insert(ACCEPT, text);
        let asked = self.endpoint.ask(Method::GET, "", Bytes::new(), &headers);
        let mut reply = asked.await?;
        let body = reply.rest(LONGEST_BODY).await?;
        let kind = reply.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let html = kind.is_some_and(|kind| kind.starts_with(b"text/html"));
        let status = reply.status;
        self.endpoint.keep(reply);
        Ok((status, html, body))
    }
}

fn samples(status: StatusCode, html: bool, body: &[u8]) -> Result<Vec<Sample>, String> {
    if !status.is_success() {
        return Err(format!("answers {status}: is this where its metrics are?"));
    }
    if html {
        return Err("it is a page of HTML, want metrics in Prometheus' text form".to_owned());
    }
    let text = std::str::from_utf8(body).map_err(|_| "it is not UTF-8".to_owned())?;
    let samples = parse(text).map_err(|error| error.to_string())?;
    match samples.is_empty() {
        true => Err("it holds no metric".to_owned()),
        false => Ok(samples),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_key_and_the_headers_of_the_load_go_to_its_own_server_only() {
        let header = ("x-team".to_owned(), "mine".to_owned());
        let target = Target {
            url: "http://127.0.0.1:8080".parse().unwrap(),
            key: Some("secret".to_owned()),
            headers: vec![header.clone()],
            http2: false,
            ca: None,
        };
        for (url, own) in [
            ("http://127.0.0.1:8080/metrics", true),
            ("http://127.0.0.1:8080/other/metrics", true),
            ("http://127.0.0.1:9090/metrics", false),
            ("http://127.0.0.2:8080/metrics", false),
        ] {
            let source = Source::find(url, &target).await.unwrap();
            let found = source.endpoint.target();
            let key = own.then_some("secret");
            assert_eq!(found.key.as_deref(), key, "{url}");
            let headers = if own {
                vec![header.clone()]
            } else {
                Vec::new()
            };
            assert_eq!(found.headers, headers, "{url}");
        }
    }

    #[test]
    fn what_is_no_metrics_is_told_by_what_it_is() {
        for (status, html, body, says) in [
            (404, false, "", "answers 404 Not Found"),
            (200, true, "<html>", "a page of HTML"),
            (200, false, "<html>", "line 1: \"<html>\" is no metric"),
            (200, false, "# nothing\n", "it holds no metric"),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let error = samples(status, html, body.as_bytes()).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        assert!(samples(StatusCode::OK, false, &[0xff, 0xfe]).is_err());
        assert_eq!(samples(StatusCode::OK, false, b"a 1").unwrap().len(), 1);
    }
}
