//! Requests that are let through, and those that are not, in one piece and byte by byte.

use proptest::prelude::*;

use super::*;

const LIMITS: HeadLimits = HeadLimits {
    bytes: 400,
    headers: 5,
    uri: 100,
};

/// What goes on, and why the rest does not.
fn read(pieces: &[&[u8]]) -> (Vec<u8>, Option<Refusal>, Framing) {
    let mut framing = Framing::new(LIMITS);
    let mut out = Vec::new();
    for piece in pieces {
        let mut piece = *piece;
        while !piece.is_empty() {
            match framing.read(piece, &mut out) {
                Ok(taken) => piece = &piece[taken..],
                Err(refusal) => return (out, Some(refusal), framing),
            }
        }
    }
    (out, None, framing)
}

#[track_caller]
fn assert_refused(text: &str, want: Refusal) {
    let (out, refusal, _) = read(&[text.as_bytes()]);
    assert_eq!(refusal, Some(want), "{text:?}");
    let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
    let (slowly, refusal, _) = read(&bytes);
    assert_eq!((refusal, slowly), (Some(want), out), "{text:?}");
}

/// Lets it through as it is.
#[track_caller]
fn assert_passes(text: &str, heads: u64) {
    let (out, refusal, framing) = read(&[text.as_bytes()]);
    assert_eq!(refusal, None, "{text:?}");
    assert_eq!(String::from_utf8(out).unwrap(), text);
    assert_eq!((framing.heads(), framing.place()), (heads, Place::Between));
}

fn with(header: &str) -> String {
    format!("POST /v1 HTTP/1.1\r\nhost: g\r\n{header}\r\n\r\n")
}

#[test]
fn requests_follow_one_another_with_bodies_of_both_kinds() {
    assert_passes("GET / HTTP/1.0\r\n\r\n", 1);
    assert_passes(
        "GET http://a:1/b?c HTTP/1.1\r\nHost: a:1\r\nx: \t y\u{e9}\r\n\r\n",
        1,
    );
    let fixed = "POST /a HTTP/1.1\r\nhost: g\r\ncontent-length: 3\r\n\r\nabc";
    let chunked = "POST /b HTTP/1.1\r\nhost: g\r\ntransfer-encoding: Chunked\r\n\r\n\
                   a;x=\"y z\"\r\n0123456789\r\n1\r\n.\r\n0\r\nx-sum: 1\r\n\r\n";
    let empty = "POST /b HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_passes(&[fixed, chunked, empty, fixed].concat(), 4);
}

#[test]
fn empty_lines_before_a_request_are_dropped_up_to_a_few() {
    let request = "GET / HTTP/1.1\r\nhost: g\r\n\r\n";
    let (out, refusal, framing) = read(&[b"\r\n\r\n", request.as_bytes()]);
    assert_eq!((out.as_slice(), refusal), (request.as_bytes(), None));
    assert_eq!(framing.heads(), 1);
    assert_refused("\r\n\r\n\r\n\r\n\r\n", Refusal::RequestLine);
}

#[test]
fn what_two_readers_could_end_at_different_places_is_refused() {
    for (header, want) in [
        (
            "content-length: 1\r\ntransfer-encoding: chunked",
            Refusal::LengthAndChunked,
        ),
        (
            "transfer-encoding: chunked\r\ncontent-length: 1",
            Refusal::LengthAndChunked,
        ),
        (
            "content-length: 1\r\nContent-Length: 2",
            Refusal::TwoLengths,
        ),
        (
            "content-length: 1\r\nContent-Length: 1",
            Refusal::TwoLengths,
        ),
        ("content-length: 1, 1", Refusal::ContentLength),
        ("content-length: +1", Refusal::ContentLength),
        ("content-length: -1", Refusal::ContentLength),
        ("content-length: 0x1", Refusal::ContentLength),
        ("content-length:", Refusal::ContentLength),
        (
            "content-length: 99999999999999999999",
            Refusal::ContentLength,
        ),
        (
            "transfer-encoding: gzip, chunked",
            Refusal::TransferEncoding,
        ),
        (
            "transfer-encoding: chunked, chunked",
            Refusal::TransferEncoding,
        ),
        (
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked",
            Refusal::TransferEncoding,
        ),
        ("transfer-encoding: identity", Refusal::TransferEncoding),
        ("transfer-encoding: xchunked", Refusal::TransferEncoding),
        ("transfer-encoding: \x0bchunked", Refusal::HeaderValue),
        ("transfer-encoding : chunked", Refusal::HeaderName),
        ("content-length : 1", Refusal::HeaderName),
        ("x: y\r\n transfer-encoding: chunked", Refusal::Folded),
        ("x: y\r\n\tz", Refusal::Folded),
        ("x: y\nz: 1", Refusal::LineEnd),
        ("x: y\rz: 1", Refusal::LineEnd),
        ("x: \0", Refusal::HeaderValue),
        ("x: a\x7f", Refusal::HeaderValue),
        (": y", Refusal::HeaderName),
        ("no colon", Refusal::HeaderName),
        ("host: other", Refusal::Host),
    ] {
        assert_refused(&with(header), want);
    }
    let old = "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n";
    assert_refused(old, Refusal::TransferEncoding);
}

#[test]
fn a_first_line_that_is_none_is_refused_at_once() {
    for (line, want) in [
        ("\x16\x03\x01", Refusal::Tls),
        ("\0", Refusal::RequestLine),
        (" GET / HTTP/1.1\r\n", Refusal::RequestLine),
        ("GET / HTTP/1.1 \r\n", Refusal::RequestLine),
        ("GET  / HTTP/1.1\r\n", Refusal::RequestLine),
        ("GET /\r\n", Refusal::RequestLine),
        ("G(T / HTTP/1.1\r\n", Refusal::RequestLine),
        ("GET /\t HTTP/1.1\r\n", Refusal::Target),
        ("GET /\u{e9} HTTP/1.1\r\n", Refusal::Target),
        ("GET http:// HTTP/1.1\r\n", Refusal::Target),
        ("GET / HTTP/2.0\r\n", Refusal::Version),
        ("GET / HTTP/1.2\r\n", Refusal::Version),
        ("GET / http/1.1\r\n", Refusal::RequestLine),
        ("GET / HTTP/1.1\n", Refusal::LineEnd),
    ] {
        assert_refused(line, want);
    }
}

#[test]
fn a_host_is_needed_from_1_1_on_and_has_to_be_one() {
    assert_refused("GET / HTTP/1.1\r\n\r\n", Refusal::Host);
    for bad in ["a b", "a/b", "u@a", "a:b"] {
        assert_refused(
            &format!("GET / HTTP/1.1\r\nhost: {bad}\r\n\r\n"),
            Refusal::Host,
        );
    }
    for good in ["", "a", "a:80", "[::1]:80", "127.0.0.1"] {
        assert_passes(&format!("GET / HTTP/1.1\r\nhost: {good}\r\n\r\n"), 1);
    }
}

#[test]
fn heads_have_bounds_in_every_direction() {
    let uri = |length: usize| {
        format!(
            "GET /{} HTTP/1.1\r\nhost: g\r\n\r\n",
            "a".repeat(length - 1)
        )
    };
    assert_passes(&uri(100), 1);
    assert_refused(&uri(101), Refusal::UriTooLong(100));
    assert_refused(
        &format!("GET /{}", "a".repeat(200)),
        Refusal::UriTooLong(100),
    );
    let headers = |count: usize| with(&vec!["x: y"; count].join("\r\n"));
    assert_passes(&headers(4), 1);
    assert_refused(&headers(5), Refusal::TooManyHeaders(5));
    assert_refused(
        &with(&format!("x: {}", "y".repeat(400))),
        Refusal::HeadTooLarge(400),
    );
}

#[test]
fn a_chunk_that_is_not_as_it_says_is_refused_and_what_came_before_it_is_not() {
    let head = with("transfer-encoding: chunked");
    for (body, passes, want) in [
        ("1\r\na\r\nzz\r\n", "1\r\na\r\n", Refusal::ChunkSize),
        ("\r\n", "", Refusal::ChunkSize),
        ("0x1\r\n", "0", Refusal::ChunkSize),
        ("-1\r\n", "", Refusal::ChunkSize),
        (" 1\r\n", "", Refusal::ChunkSize),
        ("1 \r\n", "1", Refusal::ChunkSize),
        (
            "1111111111111111\r\n",
            "111111111111111",
            Refusal::ChunkSize,
        ),
        ("1\na\r\n", "1", Refusal::ChunkSize),
        ("1\r\r\na", "1\r", Refusal::LineEnd),
        ("1;\x01\r\n", "1;", Refusal::ChunkExtension(256)),
        ("1;a\nb\r\n", "1;a", Refusal::ChunkExtension(256)),
        ("1\r\nab\r\n", "1\r\na", Refusal::ChunkEnd),
        ("1\r\na\n", "1\r\na", Refusal::ChunkEnd),
        (
            "0\r\ncontent-length: 1\r\n",
            "0\r\ncontent-length: 1\r",
            Refusal::Trailer,
        ),
        ("0\r\nx y\r\n", "0\r\nx y\r", Refusal::HeaderName),
        ("0\r\nx: y\n", "0\r\nx: y", Refusal::LineEnd),
    ] {
        let text = format!("{head}{body}");
        assert_refused(&text, want);
        let (out, ..) = read(&[text.as_bytes()]);
        assert_eq!(String::from_utf8(out).unwrap(), format!("{head}{passes}"));
    }
    let long = format!("{head}1;{}\r\n", "x".repeat(257));
    assert_refused(&long, Refusal::ChunkExtension(256));
    let many = format!("{head}0\r\n{}\r\n", "x: y\r\n".repeat(6));
    assert_refused(&many, Refusal::TooManyHeaders(5));
}

#[test]
fn a_body_may_go_by_without_a_look() {
    let head = with("content-length: 10");
    let (_, _, mut framing) = read(&[head.as_bytes()]);
    assert_eq!(framing.place(), Place::Body(10));
    framing.passed(4);
    assert_eq!(framing.place(), Place::Body(6));
    let mut out = Vec::new();
    assert_eq!(framing.read(b"012345GET", &mut out), Ok(6));
    assert_eq!(out, b"012345");
    assert_eq!(framing.place(), Place::Between);
}

proptest! {
    #[test]
    fn however_bytes_are_cut_they_are_read_alike(
        edits in proptest::collection::vec((0..400_usize, any::<u8>()), 0..4),
        cuts in proptest::collection::vec(0..400_usize, 0..6),
    ) {
        let mut text = [
            with("content-length: 3"), "abc".into(), with("transfer-encoding: chunked"),
            "a;x\r\n0123456789\r\n0\r\nt: u\r\n\r\n".into(), with("x: y"),
        ].concat().into_bytes();
        for (at, byte) in edits {
            let at = at % text.len();
            text[at] = byte;
        }
        let (whole, refusal, _) = read(&[&text]);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
        let (out, again, _) = read(&pieces);
        prop_assert_eq!((out, again), (whole, refusal));
    }
}
