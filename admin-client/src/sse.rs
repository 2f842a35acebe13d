//! Parses server-sent events from bytes as they arrive. No I/O.

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The last `id:` of the stream so far. A new connection continues after it.
    pub id: Option<String>,
    /// Its `event:`; empty without one.
    pub name: String,
    pub data: String,
}

/// Longer lines are truncated. No event of the pool is nearly as long.
const LINE_MAX_BYTES: usize = 16 << 20;

/// Drops comments and unknown fields, as the format requires.
#[derive(Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    data: Option<String>,
    name: String,
    id: Option<String>,
}

impl Parser {
    /// Takes the next bytes and returns the events they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        for &byte in bytes {
            if byte != b'\n' {
                if self.line.len() < LINE_MAX_BYTES {
                    self.line.push(byte);
                }
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let text = String::from_utf8_lossy(&line);
            if let Some(event) = self.take(text.trim_end_matches('\r')) {
                events.push(event);
            }
        }
        events
    }

    fn take(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let name = std::mem::take(&mut self.name);
            return self.data.take().map(|data| Event {
                id: self.id.clone(),
                name,
                data,
            });
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

    #[test]
    fn events_are_found_however_the_bytes_are_cut() {
        let text = ": hello\nid: 7\nevent: loaded\ndata: {\"a\":\ndata: \"ü\"}\n\n\r\nid: 8\r\ndata: x\r\n\r\ndata: unfinished\n";
        for size in [1, 2, 3, 7, text.len()] {
            let mut parser = Parser::default();
            let events: Vec<Event> = text
                .as_bytes()
                .chunks(size)
                .flat_map(|bytes| parser.push(bytes))
                .collect();
            let expected =
                [("7", "loaded", "{\"a\":\n\"ü\"}"), ("8", "", "x")].map(|(id, name, data)| {
                    Event {
                        id: Some(id.to_owned()),
                        name: name.to_owned(),
                        data: data.to_owned(),
                    }
                });
            assert_eq!(events, expected, "cut every {size} bytes");
        }
    }

    #[test]
    fn comments_alone_make_no_event() {
        assert_eq!(
            Parser::default().push(b": still here\n\n: and here\n\n"),
            []
        );
    }
}
