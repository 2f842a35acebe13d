//! Finds the end of a response body: by its length, its last chunk, or the end of the connection. Performs no I/O.

use bytes::BytesMut;
use thiserror::Error;

/// Limits of a size line: the digits of its number, and the bytes after it. The second also limits all trailers together.
const DIGITS_MAX: u8 = 15;
const REST_BYTES_MAX: u32 = 16 << 10;

/// The remaining part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(u64),
    Chunked(Chunk),
    UntilClose,
}

/// The position in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// In the number of a size line.
    Size {
        size: u64,
        digits: u8,
    },
    /// After the number of a size line.
    Extension {
        size: u64,
        bytes: u32,
    },
    /// In the data, with `left` bytes remaining.
    Data {
        left: u64,
    },
    /// Between the data and the next size line.
    DataEnd,
    /// In the trailers: bytes of the current line, and of all lines.
    Trailer {
        line: u32,
        bytes: u32,
    },
    Over,
}

/// Malformed chunk framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the engine's response has a malformed chunk")]
pub(crate) struct BadChunk;

impl Framing {
    pub(crate) const CHUNKED: Framing = Framing::Chunked(Chunk::FIRST);

    /// Returns true if the body is complete.
    pub fn is_over(&self) -> bool {
        matches!(self, Framing::Length(0) | Framing::Chunked(Chunk::Over))
    }

    /// Appends the body bytes of `input` to `body`. Returns the number of bytes of `input` that belong to this response.
    pub fn decode(&mut self, input: &[u8], body: &mut BytesMut) -> Result<usize, BadChunk> {
        match self {
            Framing::UntilClose => {
                body.extend_from_slice(input);
                Ok(input.len())
            }
            Framing::Length(left) => Ok(take(left, input, body)),
            Framing::Chunked(chunk) => chunk.decode(input, body),
        }
    }
}

/// Moves up to `left` bytes to the body.
fn take(left: &mut u64, input: &[u8], body: &mut BytesMut) -> usize {
    let most = usize::try_from(*left).unwrap_or(usize::MAX);
    let count = most.min(input.len());
    body.extend_from_slice(&input[..count]);
    *left -= count as u64;
    count
}

impl Chunk {
    const FIRST: Chunk = Chunk::Size { size: 0, digits: 0 };

    fn decode(&mut self, input: &[u8], body: &mut BytesMut) -> Result<usize, BadChunk> {
        let mut at = 0;
        while at < input.len() && *self != Chunk::Over {
            if let Chunk::Data { left } = self {
                at += take(left, &input[at..], body);
                if *left == 0 {
                    *self = Chunk::DataEnd;
                }
            } else {
                *self = self.after(input[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    /// The position after a byte outside of the data.
    fn after(self, byte: u8) -> Result<Chunk, BadChunk> {
        match (self, byte) {
            (Chunk::Size { size, digits }, b'\n') if digits > 0 => Ok(Chunk::new(size)),
            (Chunk::Size { size, digits }, b'\r' | b';' | b' ' | b'\t') if digits > 0 => {
                Ok(Chunk::Extension { size, bytes: 0 })
            }
            (Chunk::Size { size, digits }, digit) => {
                let value = char::from(digit).to_digit(16).ok_or(BadChunk)?;
                if digits < DIGITS_MAX {
                    Ok(Chunk::Size {
                        size: (size << 4) | u64::from(value),
                        digits: digits + 1,
                    })
                } else {
                    Err(BadChunk)
                }
            }
            (Chunk::Extension { size, .. }, b'\n') => Ok(Chunk::new(size)),
            (Chunk::Extension { size, bytes }, _) if bytes < REST_BYTES_MAX => {
                let bytes = bytes + 1;
                Ok(Chunk::Extension { size, bytes })
            }
            (Chunk::DataEnd, b'\r') => Ok(Chunk::DataEnd),
            (Chunk::DataEnd, b'\n') => Ok(Chunk::FIRST),
            (Chunk::Trailer { line: 0, .. }, b'\n') => Ok(Chunk::Over),
            (Chunk::Trailer { bytes, .. }, b'\n') => Ok(Chunk::Trailer { line: 0, bytes }),
            (Chunk::Trailer { line, bytes }, b'\r') => Ok(Chunk::Trailer { line, bytes }),
            (Chunk::Trailer { line, bytes }, _) if bytes < REST_BYTES_MAX => Ok(Chunk::Trailer {
                line: line + 1,
                bytes: bytes + 1,
            }),
            _ => Err(BadChunk),
        }
    }

    /// The position after a complete size line.
    fn new(size: u64) -> Chunk {
        match size {
            0 => Chunk::Trailer { line: 0, bytes: 0 },
            left => Chunk::Data { left },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `input` in two pieces. Returns the body and the number of bytes that belong to the response.
    fn decoded(framing: Framing, input: &[u8], cut: usize) -> Result<(Vec<u8>, usize), BadChunk> {
        let mut framing = framing;
        let mut body = BytesMut::new();
        let mut used = framing.decode(&input[..cut], &mut body)?;
        if used == cut {
            used += framing.decode(&input[cut..], &mut body)?;
        }
        Ok((body.to_vec(), used))
    }

    #[test]
    fn chunks_are_decoded_into_one_body_for_any_split() {
        let input =
            b"5\r\nhello\r\n6;a=b\r\n world\r\n00A\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\nHTTP/1.1";
        let over = input.len() - b"HTTP/1.1".len();
        for cut in 0..=input.len() {
            let (body, used) = decoded(Framing::CHUNKED, input, cut).unwrap();
            assert_eq!(body, b"hello world0123456789", "cut at {cut}");
            assert_eq!(used, over, "cut at {cut}");
        }
    }

    #[test]
    fn a_chunked_body_ends_with_its_last_line() {
        let mut framing = Framing::CHUNKED;
        let mut body = BytesMut::new();
        for (input, is_over) in [
            ("1\r\na\r\n", false),
            ("0\r\n", false),
            ("\r", false),
            ("\n", true),
        ] {
            let used = framing.decode(input.as_bytes(), &mut body);
            assert_eq!(used, Ok(input.len()));
            assert_eq!(framing.is_over(), is_over, "{input:?}");
        }
    }

    #[test]
    fn invalid_chunks_are_refused() {
        let (long, endless) = ("1".repeat(16), format!("1;{}", "a".repeat(20 << 10)));
        for input in [
            "\r\n", "x\r\n", "-1\r\n", "1\r\nab", ";a=b\r\n", &long, &endless,
        ] {
            let mut framing = Framing::CHUNKED;
            let decoded = framing.decode(input.as_bytes(), &mut BytesMut::new());
            assert_eq!(decoded, Err(BadChunk), "{}", &input[..input.len().min(16)]);
        }
    }

    #[test]
    fn a_declared_length_ends_the_body_and_otherwise_the_connection_does() {
        let (body, used) = decoded(Framing::Length(5), b"hello, world", 2).unwrap();
        assert_eq!((body.as_slice(), used), (b"hello".as_slice(), 5));
        assert!(Framing::Length(0).is_over());
        let (body, used) = decoded(Framing::UntilClose, b"hello", 2).unwrap();
        assert_eq!((body.as_slice(), used), (b"hello".as_slice(), 5));
        assert!(!Framing::UntilClose.is_over());
    }
}
