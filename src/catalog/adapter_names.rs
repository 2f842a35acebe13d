//! LoRA adapters without a file in the catalogue: a request names `base:suffix:id`, and the adapter is looked for below a
//! path of the base model, in a folder of that name or of `suffix:id`. Here is which names they have and how many a replica
//! holds; `controller` looks for them, and the pool decides which leaves for which.

use std::path::PathBuf;

use pool::{Bytes, Span};

/// The longest `suffix:id`.
const ID_MAX: usize = 128;

/// What one replica has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdapterRoom {
    pub count: u32,
    /// The highest rank.
    pub rank: u32,
}

/// A base model's adapters that are looked for by their names.
#[derive(Clone, Debug, PartialEq)]
pub struct DynamicAdapters {
    /// Where they are looked for; absolute.
    pub folder: PathBuf,
    pub room: AdapterRoom,
    /// The most that the files of one take.
    pub bytes_max: Bytes,
    /// What the base model is called by those who train adapters for it: the last parts of its names.
    pub bases: Vec<String>,
    /// How long it may take to bring one.
    pub timeout: Span,
}

impl DynamicAdapters {
    /// Whether an adapter that was trained for a model of this name is one of this model's. Names are compared without
    /// the organisation or the folders before them, in which copies of a model differ.
    pub fn is_base(&self, name: &str) -> bool {
        self.bases.contains(&last_of(name))
    }

    /// The `suffix:id` of a name that may be one of the adapters of `base`. A name that could lead out of the folder is
    /// none.
    pub fn id_of<'a>(&self, base: &str, name: &'a str) -> Option<&'a str> {
        let id = name.strip_prefix(base)?.strip_prefix(':')?;
        is_id(id).then_some(id)
    }
}

/// What is behind the last slash of a model's name or folder, in small letters.
pub(super) fn last_of(name: &str) -> String {
    let last = name.trim_end_matches('/').rsplit('/').next();
    last.unwrap_or_default().to_ascii_lowercase()
}

/// Parts of letters, digits, `.`, `_` and `-`, with colons between; none begins with a dot.
fn is_id(id: &str) -> bool {
    let is_part = |part: &str| {
        let mut bytes = part.bytes();
        bytes.next().is_some_and(|it| it.is_ascii_alphanumeric())
            && bytes.all(|it| it.is_ascii_alphanumeric() || b"._-".contains(&it))
    };
    id.len() <= ID_MAX && id.split(':').all(is_part) && id.split(':').count() <= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_cannot_lead_out_of_its_folder() {
        for id in ["polite:7", "polite", "a.b_c-d:2024"] {
            assert!(is_id(id), "{id}");
        }
        let long = "a".repeat(ID_MAX + 1);
        for id in [
            "", ":", "a:", ":7", "..", "../x", "a:..", "a/../b:7", "a:.b", "a b", "a\0", "a:b:c",
            &long,
        ] {
            assert!(!is_id(id), "{id}");
        }
    }
}
