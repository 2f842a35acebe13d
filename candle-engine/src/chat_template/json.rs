//! Formats values like Python's `json.dumps`, for templates that print JSON.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::Value as Json;
use serde_json::ser::Formatter;
use std::io::{self, Write};

/// Maximum indentation, in spaces.
const INDENT_MAX: usize = 16;

/// Hugging Face's `tojson` filter: escapes nothing for HTML, and non-ASCII characters only if requested.
pub(super) fn to_json(value: Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    let sorts: Option<bool> = options.get("sort_keys")?;
    let ascii: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let (comma, colon) = match (separators.as_deref(), indent) {
        (Some([comma, colon]), _) => (comma.clone(), colon.clone()),
        (Some(_), _) => {
            let message = "separators must be two strings, between items and after keys";
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        (None, Some(_)) => (",".to_owned(), ": ".to_owned()),
        (None, None) => (", ".to_owned(), ": ".to_owned()),
    };
    let style = PythonJson {
        indent: indent.map(|spaces| spaces.min(INDENT_MAX)),
        comma,
        colon,
        ascii: ascii.unwrap_or(false),
        depth: 0,
        filled: false,
    };
    let failed =
        |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    let mut written = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(&mut written, style);
    if sorts.unwrap_or(false) {
        let mut value = serde_json::to_value(&value).map_err(failed)?;
        sort_keys(&mut value);
        value.serialize(&mut writer).map_err(failed)?;
    } else {
        value.serialize(&mut writer).map_err(failed)?;
    }
    String::from_utf8(written)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

fn sort_keys(value: &mut Json) {
    match value {
        Json::Array(items) => items.iter_mut().for_each(sort_keys),
        Json::Object(object) => {
            object.sort_keys();
            object.values_mut().for_each(sort_keys);
        }
        _ => {}
    }
}

/// Formats a fractional number like Python; returns `None` for other values.
pub(super) fn python_float(value: &Value) -> Option<String> {
    if value.kind() != ValueKind::Number || value.is_integer() {
        return None;
    }
    f64::try_from(value.clone()).ok().map(float_text)
}

/// The shortest digits that identify the number, with an exponent below 1e-4 and from 1e16 on. Rust differs only in the notation of
/// the exponent.
fn float_text(number: f64) -> String {
    let text = format!("{number:?}");
    let Some((digits, exponent)) = text.split_once('e') else {
        return text;
    };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{exponent:0>2}")
}

struct PythonJson {
    indent: Option<usize>,
    comma: String,
    colon: String,
    ascii: bool,
    depth: usize,
    /// The current or most recently closed container is not empty.
    filled: bool,
}

impl PythonJson {
    fn new_line<W: Write + ?Sized>(&self, out: &mut W) -> io::Result<()> {
        match self.indent {
            Some(spaces) => write!(out, "\n{:1$}", "", spaces * self.depth),
            None => Ok(()),
        }
    }

    fn begin<W: Write + ?Sized>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.filled = false;
        out.write_all(bracket)
    }

    fn end<W: Write + ?Sized>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.filled {
            self.new_line(out)?;
        }
        self.filled = true;
        out.write_all(bracket)
    }

    fn next<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(self.comma.as_bytes())?;
        }
        self.filled = true;
        self.new_line(out)
    }
}

impl Formatter for PythonJson {
    fn begin_array<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"[")
    }

    fn end_array<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"]")
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.next(out, first)
    }

    fn begin_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"{")
    }

    fn end_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"}")
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.next(out, first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(self.colon.as_bytes())
    }

    fn write_f64<W: Write + ?Sized>(&mut self, out: &mut W, number: f64) -> io::Result<()> {
        out.write_all(float_text(number).as_bytes())
    }

    fn write_string_fragment<W: Write + ?Sized>(
        &mut self,
        out: &mut W,
        text: &str,
    ) -> io::Result<()> {
        if !self.ascii {
            return out.write_all(text.as_bytes());
        }
        for letter in text.chars() {
            if letter.is_ascii() && letter != '\u{7f}' {
                out.write_all(&[letter as u8])?;
            } else {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_a_fraction_are_written_as_python_writes_them() {
        for (number, expected) in [
            (1.0, "1.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (-1.5e300, "-1.5e+300"),
        ] {
            assert_eq!(float_text(number), expected);
        }
    }
}
