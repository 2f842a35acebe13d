//! Server-sent events as bytes: where one ends, and what its data is. It reads no JSON.

/// The payload of an event's `data:` lines, if it has any; comments have none.
pub(super) fn data_of(event: &[u8]) -> Option<&[u8]> {
    event
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"data:"))
        .map(|data| data.trim_ascii())
}

/// The length of the first event, with its empty line, once all of it is there. Both kinds of line ends
/// occur.
pub(super) fn event_end(bytes: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'\n', bytes).find_map(|at| {
        let line = &bytes[..=at];
        let ended = line.ends_with(b"\n\n") || line.ends_with(b"\r\n\r\n");
        ended.then_some(at + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_ends_with_its_empty_line() {
        assert_eq!(event_end(b"data: a\n\ndata: b\n\n"), Some(9));
        assert_eq!(event_end(b"data: a\r\n\r\ndata"), Some(11));
        assert_eq!(event_end(b": a\ndata: b\n"), None);
        assert_eq!(event_end(b"data: a\r\n"), None);
        assert_eq!(event_end(b""), None);
    }

    #[test]
    fn the_data_of_an_event_is_told_without_spaces_and_comments() {
        assert_eq!(data_of(b": x\ndata: {}\r\n\r\n"), Some(&b"{}"[..]));
        assert_eq!(data_of(b"data:[DONE]\n\n"), Some(&b"[DONE]"[..]));
        assert_eq!(data_of(b": only a comment\n\n"), None);
    }
}
