//! One request to a gateway, in HTTP/1.0: the answer ends where the connection does. Over TLS where the
//! URL says so.

mod tls;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_ANSWER_BYTES: u64 = 16 << 20;
/// First byte of an alert of TLS: what a TLS server says to a plain request.
const TLS_ALERT: u8 = 0x15;

/// An answer's status code and body.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: String,
}

/// Whom a command trusts.
#[derive(Args, Debug)]
pub(crate) struct Trust {
    /// Certificates, in PEM, of the authorities that an https gateway's certificate may be of, or that
    /// certificate itself [default: the system's authorities]
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// Where a gateway answers.
pub(crate) struct Site {
    /// `HOST:PORT`.
    authority: String,
    /// `None`: in the clear.
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Site {
    /// What a URL such as `http://127.0.0.1:8080/` or `https://gateway.example` means; what is wrong with
    /// it otherwise.
    pub(crate) fn of(url: &str, trust: &Trust) -> Result<Self, String> {
        let ca = trust.ca.as_deref();
        let want = || {
            format!("{url}: want a URL such as http://127.0.0.1:8080 or https://gateway.example")
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(want)?;
        let port = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return Err(want()),
        };
        let (host, authority) = authority(rest, port).ok_or_else(want)?;
        let tls = match (scheme, ca) {
            ("https", ca) => Some((tls::connector(ca)?, tls::server_name(&host)?)),
            (_, Some(ca)) => {
                let ca = ca.display();
                return Err(format!(
                    "--ca {ca}: {url} is asked in the clear; want an https URL"
                ));
            }
            (_, None) => None,
        };
        Ok(Self { authority, tls })
    }

    /// `HOST:PORT`, in the clear.
    pub(crate) fn plain(authority: &str) -> Self {
        Self {
            authority: authority.to_owned(),
            tls: None,
        }
    }
}

/// The host, and the host with its port.
fn authority(rest: &str, port: u16) -> Option<(String, String)> {
    let authority = rest.trim_end_matches('/');
    if authority.is_empty()
        || authority.contains(['/', '?', '#', '@'])
        || authority.contains(char::is_whitespace)
    {
        return None;
    }
    let given = authority
        .rsplit_once(':')
        .filter(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()));
    let (host, authority) = match given {
        Some((host, _)) => (host, authority.to_owned()),
        None => (authority, format!("{authority}:{port}")),
    };
    Some((host.to_owned(), authority)).filter(|(host, _)| !host.is_empty())
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) method: &'static str,
    pub(crate) path: &'a str,
    /// Shown as a bearer's.
    pub(crate) key: Option<&'a str>,
    /// JSON, or nothing.
    pub(crate) body: &'a str,
}

impl<'a> Ask<'a> {
    /// For what is at `path`.
    pub(crate) const fn get(path: &'a str) -> Self {
        Self {
            method: "GET",
            path,
            key: None,
            body: "",
        }
    }

    /// With a key, where there is one.
    pub(crate) const fn with_key(self, key: Option<&'a str>) -> Self {
        Self { key, ..self }
    }
}

/// Asks for `path`; the error says what failed, without the address.
pub(crate) async fn get(site: &Site, path: &str) -> Result<Answer, String> {
    ask(site, Ask::get(path)).await
}

/// Asks; the error says what failed, without the address.
pub(crate) async fn ask(site: &Site, ask: Ask<'_>) -> Result<Answer, String> {
    match timeout(PATIENCE, exchange(site, ask)).await {
        Ok(Ok(bytes)) => parse(&bytes).ok_or_else(|| no_http(&bytes)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

fn no_http(bytes: &[u8]) -> String {
    match bytes.first() {
        Some(&TLS_ALERT) => "it speaks TLS: ask with https://".to_owned(),
        _ => "the answer is no HTTP".to_owned(),
    }
}

async fn exchange(site: &Site, ask: Ask<'_>) -> Result<Vec<u8>, String> {
    let plain = |error: std::io::Error| error.to_string();
    let socket = TcpStream::connect(&site.authority).await.map_err(plain)?;
    socket.set_nodelay(true).map_err(plain)?;
    let Some((connector, name)) = &site.tls else {
        return over(socket, site, ask).await.map_err(plain);
    };
    let told = |error: std::io::Error| tls::explained(&error, &name.to_str());
    let socket = connector
        .connect(name.clone(), socket)
        .await
        .map_err(told)?;
    over(socket, site, ask).await.map_err(told)
}

async fn over(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    site: &Site,
    ask: Ask<'_>,
) -> std::io::Result<Vec<u8>> {
    let Ask {
        method,
        path,
        key,
        body,
    } = ask;
    let authority = &site.authority;
    let key = key.map_or_else(String::new, |key| {
        format!("Authorization: Bearer {key}\r\n")
    });
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: {authority}\r\n{key}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut bytes = Vec::new();
    stream
        .take(LONGEST_ANSWER_BYTES)
        .read_to_end(&mut bytes)
        .await?;
    Ok(bytes)
}

/// A key that a command shows: as given, or else from the environment, where no list of processes shows it.
pub(crate) fn key(given: Option<&str>, variable: &str) -> Result<Option<String>, String> {
    let key = given
        .map(str::to_owned)
        .or_else(|| std::env::var(variable).ok());
    let key = key.filter(|key| !key.is_empty());
    match &key {
        Some(key) if !key.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err("the key holds a blank or a character that no key has".to_owned())
        }
        _ => Ok(key),
    }
}

/// Turns what is no letter or digit into an escape, for a part of a path.
pub(crate) fn escaped(part: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    part.bytes().map(escape).collect()
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut words = head.split(' ');
    words
        .next()
        .filter(|version| version.starts_with("HTTP/1."))?;
    let code = words.next()?.get(..3)?.parse().ok()?;
    Some(Answer {
        code,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_taken_from_a_url() {
        let of = |url: &str, ca: Option<&str>| {
            let trust = Trust {
                ca: ca.map(Into::into),
            };
            Site::of(url, &trust).map(|site| (site.authority, site.tls.is_some()))
        };
        let found = |authority: &str, tls| Ok((authority.to_owned(), tls));
        let plain = |url| of(url, None);
        assert_eq!(
            plain("http://127.0.0.1:8080"),
            found("127.0.0.1:8080", false)
        );
        assert_eq!(plain("http://[::1]:8080/"), found("[::1]:8080", false));
        assert_eq!(plain("http://localhost"), found("localhost:80", false));
        assert_eq!(plain("https://a.example"), found("a.example:443", true));
        assert_eq!(plain("https://[::1]:8443"), found("[::1]:8443", true));
        for bad in [
            "127.0.0.1:8080",
            "ftp://a",
            "http://",
            "http://:80",
            "https://a/b",
            "http://a b",
        ] {
            assert!(plain(bad).is_err(), "{bad}");
        }
        let clear = of("http://a", Some("ca.pem")).unwrap_err();
        assert!(clear.contains("want an https URL"), "{clear}");
        let missing = of("https://a", Some("/nowhere/ca.pem")).unwrap_err();
        assert!(
            missing.starts_with("--ca /nowhere/ca.pem: No such file"),
            "{missing}"
        );
    }

    #[test]
    fn a_key_that_would_break_the_request_is_refused() {
        assert_eq!(key(Some("k"), "NO_SUCH"), Ok(Some("k".to_owned())));
        assert_eq!(key(Some(""), "NO_SUCH"), Ok(None));
        assert!(key(Some("k\r\nHost: x"), "NO_SUCH").is_err());
        assert_eq!(escaped("a/b c?\u{e9}"), "a%2Fb%20c%3F%C3%A9");
    }

    #[test]
    fn an_answer_is_split_into_code_and_body() {
        let answer = parse(b"HTTP/1.0 503 Service Unavailable\r\na: b\r\n\r\nno\r\n\r\n").unwrap();
        assert_eq!((answer.code, answer.body.as_str()), (503, "no\r\n\r\n"));
        for bad in [
            &b"SSH-2.0-x\r\n\r\n"[..],
            b"",
            b"HTTP/1.1 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n",
        ] {
            assert!(parse(bad).is_none());
        }
    }
}
