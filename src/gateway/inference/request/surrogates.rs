//! Replaces unpaired surrogates in JSON. JavaScript clients may cut a text in the middle of an emoji and send the remaining half as
//! an escape that UTF-8 parsers refuse; every later turn of the conversation would then be refused.

use std::sync::LazyLock;

use axum::body::Bytes;
use memchr::memmem::Finder;

/// The escape of U+FFFD, which has the same length as the escape it replaces.
const REPLACEMENT: &[u8; 6] = b"\\ufffd";

/// Returns true if the body may contain an unpaired surrogate. A cheap check that is almost always false.
pub(crate) fn may_have_halves(body: &[u8]) -> bool {
    static MARKS: LazyLock<[Finder<'static>; 2]> =
        LazyLock::new(|| ["\\ud", "\\uD"].map(Finder::new));
    MARKS.iter().any(|mark| mark.find(body).is_some())
}

/// Replaces each unpaired surrogate by U+FFFD.
pub(crate) fn without_halves(body: Bytes) -> Bytes {
    let halves = halves(&body);
    if halves.is_empty() {
        return body;
    }
    let mut mended = body.to_vec();
    for at in halves {
        mended[at..at + REPLACEMENT.len()].copy_from_slice(REPLACEMENT);
    }
    mended.into()
}

/// Returns the offsets of the escapes of unpaired surrogates, in one pass.
fn halves(body: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = memchr::memchr(b'\\', &body[at..]) {
        at += next;
        match code_at(body, at) {
            Some(0xD800..=0xDBFF) if is_low(code_at(body, at + 6)) => at += 12,
            Some(0xD800..=0xDFFF) => {
                found.push(at);
                at += 6;
            }
            // Skips the backslash and the character that it escapes.
            _ => at = (at + 2).min(body.len()),
        }
    }
    found
}

fn is_low(code: Option<u32>) -> bool {
    matches!(code, Some(0xDC00..=0xDFFF))
}

/// The code of an escape `\uXXXX` that begins here.
fn code_at(body: &[u8], at: usize) -> Option<u32> {
    let digits = body.get(at..at + 6)?.strip_prefix(b"\\u")?;
    let digits = str::from_utf8(digits).ok()?;
    let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hexadecimal.then(|| u32::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpaired_surrogates_are_replaced_and_other_text_is_unchanged() {
        for (body, mended) in [
            (r#"{"a":"x\ud83d"}"#, r#"{"a":"x\ufffd"}"#),
            (r#"{"a":"\uDE00x"}"#, r#"{"a":"\ufffdx"}"#),
            (r#"{"a":"\ud83d\ude00"}"#, r#"{"a":"\ud83d\ude00"}"#),
            (
                r#"{"a":"\ud83d\ud83d\ude00"}"#,
                r#"{"a":"\ufffd\ud83d\ude00"}"#,
            ),
            (r#"{"a":"\ude00\ud83d"}"#, r#"{"a":"\ufffd\ufffd"}"#),
            (r#"{"a":"\ud83d\n"}"#, r#"{"a":"\ufffd\n"}"#),
            (r#"{"\ud83d":1}"#, r#"{"\ufffd":1}"#),
            (r#"{"a":"\\ud83d"}"#, r#"{"a":"\\ud83d"}"#),
            (r#"{"a":"\\\ud83d"}"#, r#"{"a":"\\\ufffd"}"#),
            (r#"{"a":"\udaz9"}"#, r#"{"a":"\udaz9"}"#),
            (r#"{"a":"\ud8"#, r#"{"a":"\ud8"#),
            (r#"{"a":"\u+d83"}"#, r#"{"a":"\u+d83"}"#),
            ("\\", "\\"),
            ("", ""),
        ] {
            let bytes = Bytes::from_static(body.as_bytes());
            assert_eq!(without_halves(bytes), mended, "{body}");
        }
        assert!(may_have_halves(br#""\uD83D""#) && !may_have_halves(br#""\u00e9 ud83d""#));
    }

    #[test]
    fn a_body_with_replaced_surrogates_is_valid_json() {
        for half in 0xD800..=0xDFFF_u32 {
            for text in [format!("\\u{half:04x}"), format!("\\u{half:04X}a")] {
                let body = without_halves(format!("[\"{text}\"]").into());
                let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
                assert!(value[0].as_str().unwrap().starts_with('\u{fffd}'));
            }
        }
    }
}
