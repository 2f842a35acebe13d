//! Scans a result file after a restart, in constant memory, up to its last complete line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};
use std::path::Path;

use memchr::memchr;

use super::result_line::{ID_DIGITS, ID_START, REQUEST_DIGITS};
use crate::paths;

const BLOCK_BYTES: usize = 64 * 1024;
/// The start of a line up to the name of its second field.
const HEAD_BYTES: usize = ID_START.len() + ID_DIGITS + ID_END.len();
const ID_END: &[u8] = br#"","custom_id":"#;

#[derive(Debug, PartialEq, Eq)]
pub struct Scan {
    pub good_bytes: u64,
    pub torn_bytes: u64,
}

/// Passes the request's number of each line.
///
/// # Errors
/// Also if a complete line is not a result, or if `found` refuses its number.
pub fn scan(
    file: &File,
    path: &Path,
    mut found: impl FnMut(u64) -> Result<(), String>,
) -> io::Result<Scan> {
    let mut text = BufReader::with_capacity(BLOCK_BYTES, file);
    text.rewind()?;
    let (mut good_bytes, mut line) = (0, 1_u64);
    loop {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        let Some(bytes) =
            next_line(&mut text, &mut head).map_err(|error| paths::named(path, error))?
        else {
            break;
        };
        let added = request(&head)
            .ok_or_else(|| "it does not start with the id of a result".to_owned())
            .and_then(&mut found);
        added.map_err(|problem| paths::damaged(path, format!("line {line}: {problem}")))?;
        good_bytes += bytes;
        line += 1;
    }
    let torn_bytes = file.metadata()?.len().saturating_sub(good_bytes);
    Ok(Scan {
        good_bytes,
        torn_bytes,
    })
}

/// Reads a line and the start of its text. Returns its length with its `\n`, or `None` at the end of the complete lines. A line
/// with a zero byte ends them too: a power failure leaves zeros in place of bytes that were not synced, and JSON has none.
fn next_line(text: &mut impl BufRead, head: &mut Vec<u8>) -> io::Result<Option<u64>> {
    let mut bytes = 0;
    loop {
        let block = text.fill_buf()?;
        if block.is_empty() {
            return Ok(None);
        }
        let end = memchr(b'\n', block);
        let part = &block[..end.unwrap_or(block.len())];
        if memchr(0, part).is_some() {
            return Ok(None);
        }
        head.extend(part.iter().take(HEAD_BYTES - head.len()));
        let taken = part.len() + usize::from(end.is_some());
        text.consume(taken);
        bytes += taken as u64;
        if end.is_some() {
            return Ok(Some(bytes));
        }
    }
}

fn request(head: &[u8]) -> Option<u64> {
    let digits = head.strip_prefix(ID_START)?.strip_suffix(ID_END)?;
    let is_lower_hex = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != ID_DIGITS || !digits.iter().all(is_lower_hex) {
        return None;
    }
    let number = std::str::from_utf8(&digits[..REQUEST_DIGITS]).ok()?;
    u64::from_str_radix(number, 16).ok()
}
