//! Parses server-sent events and comments from the bytes of a stream as they arrive. No I/O.

/// Maximum size of an event. No event of a pool is nearly as large.
pub const EVENT_BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The text of a comment, without its colon.
    Comment(String),
    Message(Message),
}

/// An event with data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The last `id:` of the stream so far. A new connection continues after it.
    pub id: Option<String>,
    /// The `event:` field; empty without one.
    pub name: String,
    pub data: String,
}

/// An event exceeds the maximum size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

#[derive(Debug, Default)]
pub struct Parser {
    /// The beginning of an incomplete line.
    rest: Vec<u8>,
    data: Option<String>,
    name: String,
    id: Option<String>,
}

impl Parser {
    /// Adds bytes and returns the events that they complete.
    ///
    /// # Errors
    /// If an event is too long.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<Event>, TooLong> {
        let mut events = Vec::new();
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.rest);
            let line = line.strip_suffix(b"\r").unwrap_or(&line);
            events.extend(self.line(&String::from_utf8_lossy(line)));
        }
        self.rest.extend_from_slice(bytes);
        let held = self.data.as_ref().map_or(0, String::len);
        if self.rest.len() + held > EVENT_BYTES_MAX {
            Err(TooLong)
        } else {
            Ok(events)
        }
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let name = std::mem::take(&mut self.name);
            let data = self.data.take()?;
            let id = self.id.clone();
            return Some(Event::Message(Message { id, name, data }));
        }
        if let Some(comment) = line.strip_prefix(':') {
            return Some(Event::Comment(comment.trim().to_owned()));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "id" => self.id = Some(value.to_owned()),
            "event" => self.name = value.to_owned(),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: Option<&str>, name: &str, data: &str) -> Event {
        Event::Message(Message {
            id: id.map(str::to_owned),
            name: name.to_owned(),
            data: data.to_owned(),
        })
    }

    #[test]
    fn events_parse_the_same_for_any_split() {
        let text = b"data:one\nretry: 3\n\n: waiting position=1\n\r\nid: 7\nevent: loaded\ndata: {\"a\":\ndata: \"\xc3\xbc\xff\"}\n\nid: 8\r\ndata: x\r\n\r\ndata: cut";
        let expected = vec![
            message(None, "", "one"),
            Event::Comment("waiting position=1".to_owned()),
            message(Some("7"), "loaded", "{\"a\":\n\"ü\u{fffd}\"}"),
            message(Some("8"), "", "x"),
        ];
        for size in 1..=text.len() {
            let mut parser = Parser::default();
            let pieces = text.chunks(size);
            let events = pieces.flat_map(|piece| parser.push(piece).expect("short lines"));
            assert_eq!(
                events.collect::<Vec<_>>(),
                expected,
                "pieces of {size} bytes"
            );
        }
    }

    #[test]
    fn an_event_without_an_end_is_refused_before_it_fills_the_memory() {
        for piece in [
            vec![b'x'; 1 << 20],
            [b"data: ", &[b'x'; 1 << 20][..], b"\n"].concat(),
        ] {
            let mut parser = Parser::default();
            let refused = (0..18).find(|_| parser.push(&piece).is_err());
            assert!(refused.is_some_and(|nth| nth >= 15), "{refused:?}");
        }
    }
}
