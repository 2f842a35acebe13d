//! Counts the elements of a JSON text in one pass before anything parses it, to limit its depth, its number of keys, and the memory
//! that it would take as a tree of values.

use api_types::error::Failure;

/// Deeper bodies are not OpenAI requests, and parsers recurse.
const DEPTH_MAX: u32 = 64;
/// Some engines take quadratic time in the number of keys.
const KEYS_MAX: u32 = 20_000;
/// Memory allowed for a tree: a fixed amount, plus a multiple of the length of its text.
const TREE_BYTES_FREE: usize = 8 << 20;
const TREE_TIMES_MAX: usize = 6;

/// Size of a value in a list. Numbers and empty texts need no more.
const VALUE_BYTES: usize = size_of::<serde_json::Value>();
/// Initial capacity of a list, with allocator overhead.
const LIST_BYTES: usize = 4 * VALUE_BYTES + 16;
/// Initial capacity of an object, with its key table.
const OBJECT_BYTES: usize = 4 * (VALUE_BYTES + 32) + 80;
/// A key, in addition to its value.
const KEY_BYTES: usize = 64;
/// Smallest allocation for a text.
const TEXT_BYTES: usize = 32;

/// The element counts of a JSON text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    bytes: usize,
    keys: u32,
    commas: usize,
    texts: usize,
    lists: usize,
    objects: usize,
}

impl Shape {
    /// Scans the bytes in one pass, without recursion. Refuses bodies that are nested too deeply or have too many keys.
    pub fn parse(body: &[u8]) -> Result<Shape, Failure> {
        let mut shape = Shape {
            bytes: body.len(),
            ..Shape::default()
        };
        let (mut depth, mut at) = (0_u32, 0);
        while let Some(&byte) = body.get(at) {
            at += 1;
            match byte {
                b',' => shape.commas += 1,
                b'"' => {
                    shape.texts += 1;
                    at = past_text(body, at);
                }
                b'[' => {
                    shape.lists += 1;
                    depth += 1;
                }
                b'{' => {
                    shape.objects += 1;
                    depth += 1;
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                b':' => shape.keys += 1,
                _ => continue,
            }
            if depth > DEPTH_MAX {
                let message = format!("the body is nested deeper than {DEPTH_MAX} levels");
                return Err(Failure::invalid(None, message));
            }
            if shape.keys > KEYS_MAX {
                let message = format!("the body has more than {KEYS_MAX} keys");
                return Err(Failure::invalid(None, message));
            }
        }
        Ok(shape)
    }

    /// A lower bound of the memory for a tree of values.
    fn tree_bytes(&self) -> usize {
        let values = 1 + self.commas + self.lists + self.objects;
        self.bytes
            + values * VALUE_BYTES
            + self.lists * LIST_BYTES
            + self.objects * OBJECT_BYTES
            + self.keys as usize * KEY_BYTES
            + self.texts * TEXT_BYTES
    }
}

/// Refuses bodies that must not be parsed at all.
pub(crate) fn bounded(body: &[u8]) -> Result<(), Failure> {
    Shape::parse(body).map(drop)
}

/// Refuses a text that would take many times its own memory as a tree of values, such as a list of millions of numbers.
pub fn may_be_a_tree(text: &[u8]) -> Result<(), Failure> {
    let shape = Shape::parse(text)?;
    let most = TREE_BYTES_FREE + TREE_TIMES_MAX * text.len();
    let needed = shape.tree_bytes();
    if needed <= most {
        return Ok(());
    }
    let values = 1 + shape.commas + shape.lists + shape.objects;
    let message = format!(
        "the body has {values} values in {} bytes; parsing them would take {} MiB, more than the {} MiB allowed for this length: send fewer values",
        text.len(),
        needed >> 20,
        most >> 20
    );
    Err(Failure::invalid(None, message))
}

/// Returns the position after the string whose content begins at `at`. Uses a fast search, because prompts are most of a body.
fn past_text(body: &[u8], mut at: usize) -> usize {
    while let Some(found) = memchr::memchr2(b'"', b'\\', &body[at..]) {
        at += found + 1;
        if body[at - 1] == b'"' {
            return at;
        }
        at = (at + 1).min(body.len());
    }
    body.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_inside_strings_are_not_counted() {
        let shape = Shape::parse(br#"{"a": "[{,:\"", "b": [1, {}]}"#).unwrap();
        let wanted = Shape {
            bytes: 29,
            keys: 2,
            commas: 2,
            texts: 3,
            lists: 1,
            objects: 2,
        };
        assert_eq!(shape, wanted);
    }

    #[test]
    fn the_memory_of_a_parsed_body_is_bounded_by_the_length_of_its_text() {
        let long = format!("{{\"a\": \"{}\"}}", "x".repeat(10 << 20));
        assert!(may_be_a_tree(long.as_bytes()).is_ok());
        let turns = vec![r#"{"role":"user","content":"Hi"}"#; 9_000].join(",");
        assert!(may_be_a_tree(format!("[{turns}]").as_bytes()).is_ok());
        for value in ["0", "[]", "\"\"", "[0]", "null"] {
            let many = format!("[{}]", vec![value; 2_000_000].join(","));
            let failure = may_be_a_tree(many.as_bytes()).unwrap_err();
            assert_eq!(failure.status().as_u16(), 400);
            let message = failure.body.error.message;
            assert!(message.contains("MiB allowed"), "{message}");
        }
        let few = format!("[{}]", vec!["0"; 50_000].join(","));
        assert!(may_be_a_tree(few.as_bytes()).is_ok());
    }
}
