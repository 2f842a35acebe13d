//! Parses server-sent events from pieces of a stream: data and comments. Pure.

/// Maximum length of a line.
const LINE_MAX: usize = 16 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The text of a comment, without its colon.
    Comment(String),
    Data(String),
}

/// A line exceeds the maximum length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

#[derive(Debug, Default)]
pub struct Parser {
    /// The beginning of an incomplete line.
    rest: Vec<u8>,
    data: Vec<String>,
}

impl Parser {
    /// Adds a piece and returns the events that it completes.
    ///
    /// # Errors
    /// If a line is too long.
    pub fn push(&mut self, mut piece: &[u8]) -> Result<Vec<Event>, TooLong> {
        let mut events = Vec::new();
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(&piece[..end]);
            piece = &piece[end + 1..];
            let line = std::mem::take(&mut self.rest);
            let line = line.strip_suffix(b"\r").unwrap_or(&line);
            events.extend(self.line(&String::from_utf8_lossy(line)));
        }
        self.rest.extend_from_slice(piece);
        let held: usize = self.data.iter().map(String::len).sum();
        if self.rest.len() + held > LINE_MAX {
            Err(TooLong)
        } else {
            Ok(events)
        }
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return (!data.is_empty()).then(|| Event::Data(data.join("\n")));
        }
        if let Some(comment) = line.strip_prefix(':') {
            return Some(Event::Comment(comment.trim().to_owned()));
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        if name == "data" {
            self.data
                .push(value.strip_prefix(' ').unwrap_or(value).to_owned());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8], step: usize) -> Vec<Event> {
        let mut parser = Parser::default();
        let pieces = text.chunks(step);
        let events = pieces.flat_map(|piece| parser.push(piece).expect("short lines"));
        events.collect()
    }

    #[test]
    fn events_are_the_same_in_any_pieces() {
        let text = "event: x\ndata: {\"a\": \"ä中\"}\n\n: waiting position=1\n\r\ndata:one\r\ndata: two\r\n\r\ndata: cut";
        let expected = vec![
            Event::Data("{\"a\": \"ä中\"}".to_owned()),
            Event::Comment("waiting position=1".to_owned()),
            Event::Data("one\ntwo".to_owned()),
        ];
        for step in 1..text.len() {
            assert_eq!(all(text.as_bytes(), step), expected, "{step}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_refused_before_it_fills_the_memory() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..18).find(|_| parser.push(&piece).is_err());
        assert_eq!(refused, Some(16));
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(
            all(b"data: a\xffb\n\n", 64),
            [Event::Data("a\u{fffd}b".to_owned())]
        );
    }
}
