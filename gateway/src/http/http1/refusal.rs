//! What is wrong with the bytes of a request, and what its sender is told.

use http::StatusCode;

use crate::api::error::ApiError;

/// Why bytes are no request. One for each thing that the sender has to mend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("The first line is no request line: want `METHOD /path HTTP/1.1`.")]
    RequestLine,
    #[error("This port speaks plain HTTP, and these bytes are TLS: use http:// here.")]
    Tls,
    #[error("The path is no valid URI; characters such as spaces want percent-encoding.")]
    Target,
    #[error("The path and its query are longer than the {0} bytes that are allowed.")]
    UriTooLong(usize),
    #[error("This version of HTTP is not spoken here: want HTTP/1.0, 1.1, 2 or 3.")]
    Version,
    #[error("A line ends in a bare line feed or holds a bare carriage return: want CR LF.")]
    LineEnd,
    #[error("A header has no valid name: want letters, digits and dashes right before the colon.")]
    HeaderName,
    #[error("A header's value holds a control character.")]
    HeaderValue,
    #[error("A header is folded over several lines, which HTTP no longer allows.")]
    Folded,
    #[error("There are more headers than the {0} that are allowed.")]
    TooManyHeaders(usize),
    #[error("The headers are longer than the {0} bytes that are allowed.")]
    HeadTooLarge(usize),
    #[error("The headers did not come in time.")]
    Slow,
    #[error("A request of HTTP/1.1 needs one Host header, with a host and perhaps a port.")]
    Host,
    #[error("Content-Length is not one whole number.")]
    ContentLength,
    #[error("Content-Length is there more than once.")]
    TwoLengths,
    #[error("Transfer-Encoding is not `chunked` alone, which is all that is understood here.")]
    TransferEncoding,
    #[error("Content-Length and Transfer-Encoding are both there: want one of them.")]
    LengthAndChunked,
    #[error("The body is longer or shorter than Content-Length says.")]
    BodyLength,
    #[error("A chunk of the body does not begin with its length in hexadecimal digits.")]
    ChunkSize,
    #[error("A chunk's extension is over {0} bytes or holds a control character.")]
    ChunkExtension(usize),
    #[error("A chunk of the body is longer or shorter than it says.")]
    ChunkEnd,
    #[error("A field behind the body may not stand there.")]
    Trailer,
}

impl Refusal {
    /// The reply.
    pub(crate) fn error(self) -> ApiError {
        let (status, code) = match self {
            Self::UriTooLong(_) => (StatusCode::URI_TOO_LONG, "uri_too_long"),
            Self::Version => (
                StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                "http_version_not_supported",
            ),
            Self::TooManyHeaders(_) | Self::HeadTooLarge(_) => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "headers_too_large",
            ),
            Self::Slow => (StatusCode::REQUEST_TIMEOUT, "incomplete_headers"),
            Self::ChunkSize | Self::ChunkExtension(_) | Self::ChunkEnd | Self::Trailer => {
                (StatusCode::BAD_REQUEST, "invalid_chunk")
            }
            Self::RequestLine
            | Self::Tls
            | Self::Target
            | Self::LineEnd
            | Self::HeaderName
            | Self::HeaderValue
            | Self::Folded
            | Self::Host
            | Self::ContentLength
            | Self::TwoLengths
            | Self::BodyLength
            | Self::TransferEncoding
            | Self::LengthAndChunked => (StatusCode::BAD_REQUEST, "invalid_http"),
        };
        ApiError {
            status,
            ..ApiError::bad(code, self.to_string())
        }
    }
}
