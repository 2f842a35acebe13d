//! Bodies of Anthropic's batches, which hold all requests. Each request goes to disk as a line while the body arrives, in the memory of
//! one request.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use axum::body::Bytes;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use batch::{Endpoint, RequestFileSummary, Upload, UploadError};

const REQUESTS: &str = "requests";

/// The bytes of a body as they arrive, on a thread that may block.
struct Arriving {
    pieces: mpsc::Receiver<Bytes>,
    piece: Bytes,
    /// Bytes since the last request.
    since: Rc<Cell<usize>>,
    request_max: usize,
    is_over: bool,
}

impl Read for Arriving {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            if self.is_over {
                return Ok(0);
            }
            match self.pieces.blocking_recv() {
                // An empty piece marks the end.
                Some(piece) if piece.is_empty() => self.is_over = true,
                Some(piece) => self.piece = piece,
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let bytes = buffer.len().min(self.piece.len());
        let since = self.since.get() + bytes;
        // Twice, because a request may begin in the middle of a read.
        if since > self.request_max.saturating_mul(2) {
            let message = format!("a request is longer than {} bytes", self.request_max);
            return Err(io::Error::other(message));
        }
        self.since.set(since);
        buffer[..bytes].copy_from_slice(&self.piece.split_to(bytes));
        Ok(bytes)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    custom_id: String,
    params: Box<RawValue>,
}

/// A request in the form of a line.
#[derive(Serialize)]
struct Line<'a> {
    custom_id: &'a str,
    url: &'static str,
    body: &'a RawValue,
}

/// Writes the requests of a body to an upload.
struct Writer<'a> {
    upload: &'a mut Upload,
    since: Rc<Cell<usize>>,
    refusal: &'a mut Option<UploadError>,
}

impl<'de> DeserializeSeed<'de> for Writer<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, body: D) -> Result<(), D::Error> {
        body.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Writer<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object with the list `requests`")
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<(), M::Error> {
        let mut has_requests = false;
        while let Some(name) = map.next_key::<String>()? {
            if name != REQUESTS || has_requests {
                let name: String = name.chars().take(64).collect();
                return Err(M::Error::custom(format!(
                    "`{name}` is unknown or given twice"
                )));
            }
            has_requests = true;
            map.next_value_seed(List(&mut self))?;
        }
        if has_requests {
            Ok(())
        } else {
            Err(M::Error::missing_field(REQUESTS))
        }
    }
}

/// The list of requests.
struct List<'a, 'b>(&'a mut Writer<'b>);

impl<'de> DeserializeSeed<'de> for List<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, list: D) -> Result<(), D::Error> {
        list.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of requests")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        let writer = self.0;
        while let Some(request) = list.next_element::<Request>()? {
            writer.since.set(0);
            let line = Line {
                custom_id: &request.custom_id,
                url: Endpoint::Messages.path(),
                body: &request.params,
            };
            let mut line = serde_json::to_vec(&line).map_err(S::Error::custom)?;
            // Within JSON, line breaks occur between tokens only.
            for byte in &mut line {
                if matches!(*byte, b'\n' | b'\r') {
                    *byte = b' ';
                }
            }
            line.push(b'\n');
            if let Err(error) = writer.upload.write(&line) {
                *writer.refusal = Some(error);
                return Err(S::Error::custom("refused"));
            }
        }
        Ok(())
    }
}

/// The refusal of a body of requests.
#[derive(Debug)]
pub(super) enum BodyRefusal {
    Upload(UploadError),
    /// The body is not JSON of this form.
    Form(String),
}

/// Writes the requests of a body to an upload. Blocks.
pub(super) fn write(
    mut upload: Upload,
    pieces: mpsc::Receiver<Bytes>,
    request_max: usize,
) -> Result<RequestFileSummary, BodyRefusal> {
    let since = Rc::new(Cell::new(0));
    let arriving = Arriving {
        pieces,
        piece: Bytes::new(),
        since: Rc::clone(&since),
        request_max,
        is_over: false,
    };
    let mut refusal = None;
    let mut body = serde_json::Deserializer::from_reader(io::BufReader::new(arriving));
    let writer = Writer {
        upload: &mut upload,
        since,
        refusal: &mut refusal,
    };
    let read = writer.deserialize(&mut body).and_then(|()| body.end());
    match (read, refusal) {
        (Ok(()), _) => upload.finish().map_err(BodyRefusal::Upload),
        (Err(_), Some(refusal)) => Err(BodyRefusal::Upload(refusal)),
        (Err(error), None) => Err(BodyRefusal::Form(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use batch::{RequestFile, UploadLimits};

    const LIMITS: UploadLimits = UploadLimits {
        bytes_max: 1 << 20,
        line_bytes_max: 4_096,
        lines_max: 100,
        models_max: 10,
    };

    /// Sends the text in pieces of this size.
    fn written(text: &str, size: usize) -> Result<Vec<String>, BodyRefusal> {
        let dir = tempfile::tempdir().expect("a folder");
        let upload = Upload::create(dir.path(), "u", LIMITS).expect("created");
        let (sender, pieces) = mpsc::channel(text.len() + 2);
        for piece in text.as_bytes().chunks(size) {
            let piece = Bytes::copy_from_slice(piece);
            sender.try_send(piece).expect("room");
        }
        sender.try_send(Bytes::new()).expect("room");
        let summary = write(upload, pieces, LIMITS.line_bytes_max)?;
        let file = RequestFile::open(dir.path(), "u").expect("opened");
        let lines = (0..summary.requests).map(|nth| file.read(nth).expect("read"));
        Ok(lines
            .map(|line| String::from_utf8(line).expect("UTF-8"))
            .collect())
    }

    #[test]
    fn each_request_becomes_a_line_for_any_split_of_the_body() {
        let text = r#"{"requests": [
            {"custom_id": "a", "params": {"model": "m",
                "messages": [{"role": "user", "content": "one\ntwo"}]}},
            {"params": {"model": "n"}, "custom_id": "b"}
        ]}"#;
        for size in [1, 7, 4_096] {
            let lines = written(text, size).expect("accepted");
            assert_eq!(lines.len(), 2, "{size}");
            assert!(lines[0].starts_with(r#"{"custom_id":"a","url":"/v1/messages""#));
            assert!(!lines[0].contains('\n') && lines[0].contains(r"one\ntwo"));
        }
    }

    #[test]
    fn wrong_bodies_are_refused_with_their_fault() {
        let long = "x".repeat(20_000);
        for (text, words) in [
            ("[]", "expected an object"),
            ("{}", "missing field `requests`"),
            (r#"{"requests": [], "more": 1}"#, "`more` is unknown"),
            (
                r#"{"requests": [{"custom_id": "a"}]}"#,
                "missing field `params`",
            ),
            (
                r#"{"requests": [{"custom_id": "a", "params": {}}]}"#,
                "model",
            ),
            (r#"{"requests": []}"#, "no request"),
            (r#"{"requests": [] } x"#, "trailing"),
            (r#"{"requests": ["#, "EOF"),
            (
                &format!(r#"{{"requests": [{{"custom_id": "{long}", "params": {{}}}}]}}"#),
                "longer than 4096 bytes",
            ),
        ] {
            let shown = match written(text, 64) {
                Err(BodyRefusal::Form(message)) => message,
                Err(BodyRefusal::Upload(error)) => error.to_string(),
                Ok(lines) => panic!("{text}: {lines:?}"),
            };
            assert!(shown.contains(words), "{text}: {shown}");
        }
    }
}
