//! Refuses contents that name something to fetch or open, and raw tensors, at any depth of a request. Contents are checked while
//! they are read and not stored.

use std::cell::RefCell;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use api_types::error::Failure;

const ADDRESS: &str =
    "is a URL, and the server fetches nothing for a request: send the content as a data: URL";
const TENSOR: &str = "is a tensor, which clients may not send";
const FILE: &str =
    "names a file, and the server stores and fetches no files: send the content itself";

/// Refuses the field if it has forbidden contents; the error names their position.
pub(crate) fn check(name: &str, value: &RawValue) -> Result<(), Failure> {
    let refused = RefCell::new(None);
    let looked = Look {
        at: &Place::Field(name),
        refused: &refused,
    };
    let mut text = serde_json::Deserializer::from_str(value.get());
    // Invalid JSON names nothing; the engine refuses it.
    let _ = looked.deserialize(&mut text);
    refused.into_inner().map_or(Ok(()), Err)
}

/// The path of a value. Formatted only for errors.
enum Place<'a> {
    Field(&'a str),
    In(&'a Place<'a>, usize),
    Of(&'a Place<'a>, &'a str),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Field(name) => f.write_str(name),
            Place::In(list, nth) => write!(f, "{list}[{nth}]"),
            Place::Of(object, key) => write!(f, "{object}.{key}"),
        }
    }
}

#[derive(Clone, Copy)]
struct Look<'a> {
    at: &'a Place<'a>,
    refused: &'a RefCell<Option<Failure>>,
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut nth = 0;
        while let Some(()) = list.next_element_seed(Look {
            at: &Place::In(self.at, nth),
            ..self
        })? {
            nth += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        while let Some(key) = object.next_key::<String>()? {
            let at = Place::Of(self.at, &key);
            let wrong = match key.as_str() {
                "image_url" | "video_url" | "audio_url" => {
                    let address: &RawValue = object.next_value()?;
                    (!is_data(address)).then_some(ADDRESS)
                }
                "image_embeds" | "audio_embeds" | "video_embeds" => Some(TENSOR),
                "file_id" | "file_url" => Some(FILE),
                // Arguments for a tool, not contents.
                "tool_calls" | "function_call" => {
                    object.next_value::<IgnoredAny>()?;
                    None
                }
                _ => {
                    object.next_value_seed(Look { at: &at, ..self })?;
                    None
                }
            };
            if let Some(why) = wrong {
                let place: String = at.to_string().chars().take(200).collect();
                let failure = Failure::invalid(place.clone(), format!("`{place}` {why}"));
                self.refused.replace(Some(failure));
                return Err(serde::de::Error::custom(why));
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Returns true if the content is in the request itself, as a string or as the `url` of an object.
fn is_data(address: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        url: &'a RawValue,
    }
    let text = address.get();
    let url = if text.starts_with('{') {
        serde_json::from_str::<Object<'_>>(text)
            .ok()
            .map(|object| object.url)
    } else {
        Some(address)
    };
    url.is_some_and(|url| {
        // Slashes may be escaped with a backslash, and letters as `\u` escapes.
        let url = url.get();
        url.starts_with("\"data:")
            || (memchr::memchr(b'\\', &url.as_bytes()[..url.len().min(32)]).is_some()
                && serde_json::from_str::<String>(url).is_ok_and(|url| url.starts_with("data:")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Option<String> {
        let value: &RawValue = serde_json::from_str(text).unwrap();
        check("input", value).err()?.body.error.param
    }

    #[test]
    fn a_media_reference_is_found_in_any_spelling() {
        for (text, wanted) in [
            (r#"[{"image_url": "http://x"}]"#, Some("input[0].image_url")),
            (
                r#"[[{"a": {"image\u005furl": {"url": "x"}}}]]"#,
                Some("input[0][0].a.image_url"),
            ),
            (
                r#"{"image_url": {"url": "x"}, "image_url": {"url": "data:y"}}"#,
                Some("input.image_url"),
            ),
            (
                r#"{"image_url": {"url": "http:x", "url": "data:y"}}"#,
                Some("input.image_url"),
            ),
            (r#"{"image_url": {"url": "d\u0061ta:x"}}"#, None),
            (r#"{"image_url": 3}"#, Some("input.image_url")),
            (r#"{"tool_calls": [{"file_id": 1}]}"#, None),
            (
                r#"{"tool_calls": [], "b": {"file_id": null}}"#,
                Some("input.b.file_id"),
            ),
            (r#"["file_id", 1, -1, 1.5, true, null]"#, None),
        ] {
            assert_eq!(place(text).as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn a_long_key_before_a_long_list_is_abbreviated_and_not_copied_per_item() {
        let key = "k".repeat(300_000);
        let list = "0,".repeat(300_000);
        let text = format!(r#"{{"{key}": [{list} {{"file_id": "f"}}]}}"#);
        let place = place(&text).unwrap();
        assert!(place.len() <= 256, "{}", place.len());
    }
}
