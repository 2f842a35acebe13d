//! Finds the line numbers of the keys in a YAML or JSON text, and duplicate keys. Does not parse values, and leaves errors to the
//! parser of the values.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser};

/// Line numbers by path, such as `engine_config.generation.stopping_sequences[1]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    lines: BTreeMap<String, u64>,
    pub twice: Vec<DuplicateKey>,
}

/// A duplicate key of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateKey {
    pub path: String,
    pub first_line: u64,
    pub last_line: u64,
}

impl Positions {
    /// The positions in the text's first document, as far as it can be parsed.
    pub fn parse(text: &str) -> Positions {
        let mut reading = PositionReader::default();
        for event in Parser::new_from_str(text) {
            let Ok((event, span)) = event else { break };
            if matches!(event, Event::DocumentEnd) {
                break;
            }
            reading.handle(&event, u64::try_from(span.start.line()).unwrap_or_default());
        }
        reading.positions
    }

    /// The line of this key, if the key itself is written.
    pub fn own_line(&self, path: &str) -> Option<u64> {
        self.find(path)
    }

    /// The section `cluster` may be written with its former name.
    fn find(&self, path: &str) -> Option<u64> {
        let former = || {
            let below = path.strip_prefix("cluster")?;
            let is_section = below.is_empty() || below.starts_with('.');
            is_section.then(|| self.lines.get(&format!("autoscaler{below}")))?
        };
        self.lines.get(path).or_else(former).copied()
    }

    /// The line of this key, or of its nearest existing parent.
    pub fn line(&self, path: &str) -> Option<u64> {
        let mut path = path;
        loop {
            if let Some(line) = self.find(path) {
                return Some(line);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}

/// The mapping or sequence that encloses the next event.
enum Frame {
    Mapping {
        path: String,
        /// The key of the next value.
        key: Option<String>,
        seen: BTreeMap<String, u64>,
    },
    Sequence {
        path: String,
        next: usize,
    },
}

#[derive(Default)]
struct PositionReader {
    open: Vec<Frame>,
    positions: Positions,
}

impl PositionReader {
    fn handle(&mut self, event: &Event<'_>, line: u64) {
        match event {
            Event::Scalar(text, ..) if self.is_key(text, line) => {}
            Event::Scalar(..) => {
                let path = self.value(line);
                self.positions.lines.entry(path).or_insert(line);
            }
            Event::Alias(_) => {
                self.value(line);
            }
            Event::MappingStart(..) => {
                let path = self.value(line);
                self.open.push(Frame::Mapping {
                    path,
                    key: None,
                    seen: BTreeMap::new(),
                });
            }
            Event::SequenceStart(..) => {
                let path = self.value(line);
                self.open.push(Frame::Sequence { path, next: 0 });
            }
            Event::MappingEnd | Event::SequenceEnd => {
                self.open.pop();
            }
            _ => {}
        }
    }

    /// Takes the scalar as a key if a key is expected.
    fn is_key(&mut self, text: &str, line: u64) -> bool {
        let Some(Frame::Mapping { path, key, seen }) = self.open.last_mut() else {
            return false;
        };
        if key.is_some() {
            return false;
        }
        let own = if path.is_empty() {
            text.to_owned()
        } else {
            format!("{path}.{text}")
        };
        // Merge keys may be repeated.
        if let Some(first_line) = seen.insert(text.to_owned(), line).filter(|_| text != "<<") {
            self.positions.twice.push(DuplicateKey {
                path: own.clone(),
                first_line,
                last_line: line,
            });
        }
        // The last duplicate of a key wins.
        self.positions.lines.insert(own.clone(), line);
        *key = Some(own);
        true
    }

    /// The path of the value that begins here.
    fn value(&mut self, line: u64) -> String {
        match self.open.last_mut() {
            None => String::new(),
            // A mapping used as a key has no path.
            Some(Frame::Mapping { path, key, .. }) => key.take().unwrap_or_else(|| path.clone()),
            Some(Frame::Sequence { path, next }) => {
                let own = format!("{path}[{next}]");
                *next += 1;
                self.positions.lines.insert(own.clone(), line);
                own
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "engine_config:\n  model_id: a/b\n  stops: [x,\n    {deep: 1}]\n  model_id: c\nother: &a\n  k: 1\nthird: *a\n";

    #[test]
    fn every_key_is_located_at_its_line() {
        let positions = Positions::parse(TEXT);
        for (path, line) in [
            ("engine_config", 1),
            ("engine_config.stops", 3),
            ("engine_config.stops[0]", 3),
            ("engine_config.stops[1].deep", 4),
            ("other.k", 7),
            ("third", 8),
        ] {
            assert_eq!(positions.line(path), Some(line), "{path}");
        }
    }

    #[test]
    fn a_missing_key_is_located_at_its_nearest_parent() {
        let positions = Positions::parse(TEXT);
        assert_eq!(positions.line("other.k.missing"), Some(7));
        assert_eq!(positions.line("engine_config.absent"), Some(1));
        assert_eq!(positions.line("absent"), None);
    }

    #[test]
    fn keys_in_json_are_located_too() {
        let positions = Positions::parse("{\n \"a\": {\"b\": 1,\n  \"b\": [2]}}");
        assert_eq!(positions.line("a.b[0]"), Some(3));
        assert_eq!(positions.twice.len(), 1);
    }

    #[test]
    fn a_truncated_text_yields_the_lines_before_the_error() {
        let positions = Positions::parse("a:\n  b: [1, 2\nc: }");
        assert_eq!(positions.line("a.b"), Some(2));
    }
}
