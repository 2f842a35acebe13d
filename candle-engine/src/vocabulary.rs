//! The bytes of each token of a vocabulary.

use serde_json::Value;
use std::collections::BTreeSet;
use tokenizers::Tokenizer;

/// The texts of a model's tokens.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    bytes: Vec<Box<[u8]>>,
    /// Special tokens, such as the end of a completion.
    pub special: BTreeSet<u32>,
}

/// The encoding of bytes in a tokenizer's token names.
enum Form {
    /// A character per byte, as in GPT-2.
    ByteLevel,
    /// Text with `▁` for spaces and `<0x0A>` for bytes, as in sentencepiece.
    ByteFallback,
    /// Known only to the decoder.
    Other,
}

impl Vocabulary {
    /// Covers the ids below `count`.
    pub fn new(tokenizer: &Tokenizer, count: usize) -> Self {
        let decoder = tokenizer.get_decoder();
        let decoder = decoder.and_then(|decoder| serde_json::to_value(decoder).ok());
        let form = form(&decoder.unwrap_or_default());
        let added = tokenizer.get_added_tokens_decoder();
        let letters = byte_letters();
        let bytes = (0..count as u32).map(|id| {
            let Some(name) = tokenizer.id_to_token(id) else {
                return Vec::new();
            };
            if added.contains_key(&id) {
                return name.into_bytes();
            }
            match form {
                Form::ByteLevel => {
                    let bytes: Option<Vec<u8>> = name
                        .chars()
                        .map(|letter| letters.iter().position(|known| *known == letter))
                        .map(|byte| byte.map(|byte| byte as u8))
                        .collect();
                    bytes.unwrap_or_else(|| name.into_bytes())
                }
                Form::ByteFallback => match byte_of(&name) {
                    Some(byte) => vec![byte],
                    None => name.replace('▁', " ").into_bytes(),
                },
                Form::Other => tokenizer.decode(&[id], false).unwrap_or(name).into_bytes(),
            }
        });
        let special = |(id, token): (&u32, &tokenizers::AddedToken)| token.special.then_some(*id);
        Self {
            bytes: bytes.map(Vec::into_boxed_slice).collect(),
            special: added.iter().filter_map(special).collect(),
        }
    }

    /// The bytes of a token; empty for an id that does not exist.
    pub fn bytes(&self, token: u32) -> &[u8] {
        self.bytes.get(token as usize).map_or(&[], |bytes| bytes)
    }
}

fn form(decoder: &Value) -> Form {
    let has = |name: &str| {
        let parts = decoder["decoders"].as_array();
        let parts = parts.map_or(std::slice::from_ref(decoder), Vec::as_slice);
        parts.iter().any(|part| part["type"] == name)
    };
    if has("ByteLevel") {
        Form::ByteLevel
    } else if has("ByteFallback") || has("Metaspace") {
        Form::ByteFallback
    } else {
        Form::Other
    }
}

/// `<0x0A>` is the byte 10.
fn byte_of(name: &str) -> Option<u8> {
    let digits = name.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The character for each byte: the byte itself if it is printable, otherwise a character from U+0100 on.
fn byte_letters() -> Vec<char> {
    let mut others = ('\u{100}'..).take(256);
    (0..=255u8)
        .map(|byte| match byte {
            b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
            _ => others.next().unwrap_or(char::REPLACEMENT_CHARACTER),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn token_bytes_concatenate_to_the_encoded_text() {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/models/tiny-chat/tokenizer.json");
        let tokenizer = Tokenizer::from_file(file).expect("a tokenizer");
        let count = tokenizer.get_vocab_size(true);
        let vocabulary = Vocabulary::new(&tokenizer, count);
        for text in ["What is a lease?", "naïve café\n\t", "日本語 😀"] {
            let tokens = tokenizer.encode_fast(text, false).expect("encodes");
            let bytes: Vec<u8> = tokens
                .get_ids()
                .iter()
                .flat_map(|token| vocabulary.bytes(*token))
                .copied()
                .collect();
            assert_eq!(String::from_utf8(bytes).as_deref(), Ok(text));
        }
        let end = tokenizer.token_to_id("<|im_end|>").expect("it exists");
        assert!(vocabulary.special.contains(&end));
        assert_eq!(vocabulary.bytes(end), b"<|im_end|>");
        assert_eq!(vocabulary.bytes(count as u32), b"");
    }

    #[test]
    fn sentencepiece_byte_tokens_are_parsed() {
        assert_eq!(byte_of("<0x0A>"), Some(10));
        assert_eq!(byte_of("<0xZZ>"), None);
        assert_eq!(byte_of("hello"), None);
    }
}
