//! One line of a result file, in the format of OpenAI's batch output.

use std::io::{self, Write};

use memchr::memchr2;
use serde_json::value::RawValue;

pub const ID_START: &[u8] = br#"{"id":"batch_req_"#;
/// Hexadecimal digits of the request's number.
pub const REQUEST_DIGITS: usize = 8;
/// Hexadecimal digits of the number and of the batch's suffix.
pub const ID_DIGITS: usize = 24;

#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    pub status_code: u16,
    pub request_id: &'a str,
    pub body: &'a RawValue,
}

#[derive(Debug, Clone, Copy)]
pub struct ResultError<'a> {
    pub code: &'a str,
    pub message: &'a str,
}

/// The fields of a result after its id.
#[derive(Debug, Clone, Copy)]
pub struct ResultLine<'a> {
    pub custom_id: &'a str,
    pub response: Option<Response<'a>>,
    pub error: Option<ResultError<'a>>,
}

impl ResultLine<'_> {
    /// Appends the line with its `\n`.
    pub(super) fn render(
        &self,
        request: u64,
        id_suffix: u64,
        line: &mut Vec<u8>,
    ) -> io::Result<()> {
        line.extend_from_slice(ID_START);
        write!(line, r#"{request:08x}{id_suffix:016x}","custom_id":"#)?;
        serde_json::to_writer(&mut *line, self.custom_id)?;
        line.extend_from_slice(br#","response":"#);
        match &self.response {
            None => line.extend_from_slice(b"null"),
            Some(response) => {
                write!(
                    line,
                    r#"{{"status_code":{},"request_id":"#,
                    response.status_code
                )?;
                serde_json::to_writer(&mut *line, response.request_id)?;
                line.extend_from_slice(br#","body":"#);
                extend_on_one_line(line, response.body.get().as_bytes());
                line.push(b'}');
            }
        }
        line.extend_from_slice(br#","error":"#);
        match &self.error {
            None => line.extend_from_slice(b"null"),
            Some(error) => {
                line.extend_from_slice(br#"{"code":"#);
                serde_json::to_writer(&mut *line, error.code)?;
                line.extend_from_slice(br#","message":"#);
                serde_json::to_writer(&mut *line, error.message)?;
                line.push(b'}');
            }
        }
        line.extend_from_slice(b"}\n");
        Ok(())
    }
}

/// Appends JSON with spaces for its line ends. Strings in JSON contain none.
fn extend_on_one_line(line: &mut Vec<u8>, mut json: &[u8]) {
    while let Some(end) = memchr2(b'\n', b'\r', json) {
        line.extend_from_slice(&json[..end]);
        line.push(b' ');
        json = &json[end + 1..];
    }
    line.extend_from_slice(json);
}
