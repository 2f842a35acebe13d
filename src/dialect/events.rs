//! Server-sent events as bytes: finds the end of an event, limits its length, and extracts its data. The data is only checked for
//! being complete JSON.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use thiserror::Error;

/// Byte order mark, which some servers send at the start of a body.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// The format of an engine's body. The `content-type` header is not reliable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyForm {
    Events,
    /// A single JSON object, even if a stream was requested.
    Json,
}

impl BodyForm {
    /// Detects the format from the first bytes. `None` while only white space has arrived.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<BodyForm> {
        let bytes = bytes.strip_prefix(MARK).unwrap_or(bytes);
        bytes.trim_ascii_start().first().map(|first| match first {
            b'{' => BodyForm::Json,
            _ => BodyForm::Events,
        })
    }
}

/// Returns the contents of the event's `data:` lines, joined by line ends. `None` for comments.
#[inline]
pub fn data_of(event: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut rest = event.strip_prefix(MARK).unwrap_or(event);
    let mut data: Option<Cow<'_, [u8]>> = None;
    loop {
        let end = memchr::memchr(b'\n', rest);
        let line = &rest[..end.unwrap_or(rest.len())];
        if let Some(more) = line.strip_prefix(b"data:") {
            let more = more.trim_ascii();
            match &mut data {
                None => data = Some(Cow::Borrowed(more)),
                Some(known) => {
                    let known = known.to_mut();
                    known.push(b'\n');
                    known.extend_from_slice(more);
                }
            }
        }
        rest = match end {
            Some(end) => &rest[end + 1..],
            None => return data,
        };
        // Most events have one data line, followed by the empty line.
        if rest.len() <= LINE_ENDS_MAX {
            return data;
        }
    }
}

/// Largest event accepted from an engine: a piece of the response with the log probabilities of its tokens.
pub(crate) const EVENT_BYTES_MAX: usize = 8 << 20;

/// An engine's event exceeds [`EVENT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the engine sent an event longer than {} MiB", EVENT_BYTES_MAX >> 20)]
pub struct TooLong;

/// The bytes of an event that is not complete yet.
#[derive(Debug, Default)]
pub struct Unended {
    bytes: Vec<u8>,
}

impl Unended {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends bytes. Returns everything buffered, and the offset from which to search for an event's end.
    #[inline]
    pub fn with(&mut self, more: &[u8]) -> (&[u8], usize) {
        let known = self.bytes.len();
        self.bytes.extend_from_slice(more);
        (&self.bytes, known.saturating_sub(LINE_ENDS_MAX))
    }

    /// Removes `count` bytes of complete events from the front.
    #[inline]
    pub fn used(&mut self, count: usize) -> Result<(), TooLong> {
        self.bytes.drain(..count);
        // Releases the memory of a long event; most events are short.
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
        if self.bytes.len() <= EVENT_BYTES_MAX {
            Ok(())
        } else {
            Err(TooLong)
        }
    }
}

const KEPT_BYTES_MAX: usize = 64 << 10;
/// Bytes to search again when more arrive: an event ends with at most `\r\n\r\n`, of which three bytes may already be buffered.
pub const LINE_ENDS_MAX: usize = 3;

/// Returns true if these bytes are a complete event that only lacks its empty line.
pub fn is_whole(unended: &[u8]) -> bool {
    match data_of(unended) {
        Some(data) => *data == *b"[DONE]" || serde_json::from_slice::<IgnoredAny>(&data).is_ok(),
        None => true,
    }
}

/// Returns the length of the first event, including its empty line, or `None` if it is incomplete. Accepts both kinds of line ends.
#[inline]
pub fn event_end(bytes: &[u8]) -> Option<usize> {
    event_end_from(bytes, 0)
}

/// Like [`event_end`], if no event is known to end before `from`.
#[inline]
pub fn event_end_from(bytes: &[u8], from: usize) -> Option<usize> {
    memchr::memchr_iter(b'\n', &bytes[from..]).find_map(|at| {
        let line = &bytes[..=from + at];
        let ended = line.ends_with(b"\n\n") || line.ends_with(b"\r\n\r\n");
        ended.then_some(from + at + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_ends_with_an_empty_line() {
        assert_eq!(event_end(b"data: a\n\ndata: b\n\n"), Some(9));
        assert_eq!(event_end(b"data: a\r\n\r\ndata"), Some(11));
        assert_eq!(event_end(b": a\ndata: b\n"), None);
        assert_eq!(event_end(b"data: a\r\n"), None);
        assert_eq!(event_end(b""), None);
    }

    #[test]
    fn the_data_of_an_event_is_read_without_whitespace_and_comments() {
        for (event, data) in [
            (&b": x\ndata: {}\r\n\r\n"[..], Some(&b"{}"[..])),
            (b"data:[DONE]\n\n", Some(b"[DONE]")),
            (b"event: x\ndata: y", Some(b"y")),
            (b"\xef\xbb\xbfdata: y\n\n", Some(b"y")),
            (b"data: {\r\ndata: }\r\n\r\n", Some(b"{\n}")),
            (
                b"data: {\ndata: \"a\":\n: x\ndata: 1}\n\n",
                Some(b"{\n\"a\":\n1}"),
            ),
            (b": only a comment\n\n", None),
            (b"", None),
        ] {
            assert_eq!(data_of(event).as_deref(), data);
        }
    }

    #[test]
    fn the_form_of_a_body_is_recognized_by_its_first_byte() {
        for (body, form) in [
            (&b""[..], None),
            (b" \r\n", None),
            (b" {\"choices\"", Some(BodyForm::Json)),
            (b"\xef\xbb\xbf{", Some(BodyForm::Json)),
            (b"data: {", Some(BodyForm::Events)),
            (b": {", Some(BodyForm::Events)),
        ] {
            assert_eq!(BodyForm::read(body), form);
        }
    }

    #[test]
    fn a_split_event_is_scanned_once_and_its_length_is_limited() {
        let text = b"data: a\r\n\r\ndata: b\n\ndata: c";
        for cut in 0..=text.len() {
            let mut unended = Unended::default();
            let mut ends = Vec::new();
            for piece in [&text[..cut], &text[cut..]] {
                let (bytes, mut from) = unended.with(piece);
                let mut used = 0;
                while let Some(length) = event_end_from(&bytes[used..], std::mem::take(&mut from)) {
                    used += length;
                    ends.push(length);
                }
                unended.used(used).unwrap();
            }
            assert_eq!(ends, [11, 9], "cut at {cut}");
            assert_eq!(unended.with(b"").0, b"data: c");
        }
        let mut unended = Unended::default();
        let piece = vec![b'x'; 1 << 20];
        let mut pushed = 0;
        while {
            unended.with(&piece);
            unended.used(0).is_ok()
        } {
            pushed += 1;
        }
        assert_eq!(pushed, EVENT_BYTES_MAX >> 20);
        let shown = TooLong.to_string();
        assert_eq!(shown, "the engine sent an event longer than 8 MiB");
    }
}
