//! One GET request to a gateway, in HTTP/1.0: the answer ends where the connection does.

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

/// Asks for `path`; the error says what failed, without the address.
pub(crate) async fn get(authority: &str, path: &str) -> Result<Answer, String> {
    match timeout(PATIENCE, exchange(authority, path)).await {
        Ok(Ok(bytes)) => parse(&bytes).ok_or_else(|| "the answer is no HTTP".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

async fn exchange(authority: &str, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(authority).await?;
    stream.set_nodelay(true)?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {authority}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream
        .take(LONGEST_ANSWER_BYTES)
        .read_to_end(&mut bytes)
        .await?;
    Ok(bytes)
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
