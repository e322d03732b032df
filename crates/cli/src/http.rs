//! One request to a gateway, in HTTP/1.0: the answer ends where the connection does.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_ANSWER_BYTES: u64 = 16 << 20;

/// An answer's status code and body.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: String,
}

/// `HOST:PORT` of a URL such as `http://127.0.0.1:8080/`; what is wrong with it otherwise.
pub(crate) fn authority(url: &str) -> Result<String, String> {
    let rest = url
        .strip_prefix("http://")
        .ok_or_else(|| format!("{url}: want a URL such as http://127.0.0.1:8080"))?;
    let authority = rest.trim_end_matches('/');
    if authority.is_empty()
        || authority.contains(['/', '?', '#', '@'])
        || authority.contains(char::is_whitespace)
    {
        return Err(format!("{url}: want a URL such as http://127.0.0.1:8080"));
    }
    let has_port = authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    Ok(if has_port {
        authority.to_owned()
    } else {
        format!("{authority}:80")
    })
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
pub(crate) async fn get(authority: &str, path: &str) -> Result<Answer, String> {
    ask(authority, Ask::get(path)).await
}

/// Asks; the error says what failed, without the address.
pub(crate) async fn ask(authority: &str, ask: Ask<'_>) -> Result<Answer, String> {
    match timeout(PATIENCE, exchange(authority, ask)).await {
        Ok(Ok(bytes)) => parse(&bytes).ok_or_else(|| "the answer is no HTTP".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

async fn exchange(authority: &str, ask: Ask<'_>) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(authority).await?;
    stream.set_nodelay(true)?;
    let Ask {
        method,
        path,
        key,
        body,
    } = ask;
    let key = key.map_or_else(String::new, |key| {
        format!("Authorization: Bearer {key}\r\n")
    });
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: {authority}\r\n{key}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
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
    fn an_authority_is_taken_from_a_url() {
        assert_eq!(
            authority("http://127.0.0.1:8080").unwrap(),
            "127.0.0.1:8080"
        );
        assert_eq!(authority("http://[::1]:8080/").unwrap(), "[::1]:8080");
        assert_eq!(authority("http://localhost").unwrap(), "localhost:80");
        for bad in [
            "127.0.0.1:8080",
            "https://a",
            "http://",
            "http://a/b",
            "http://a b",
        ] {
            assert!(authority(bad).is_err(), "{bad}");
        }
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
