//! Model names with and without Ollama's `:latest` tag.

const LATEST: &str = ":latest";

/// Removes the `:latest` tag. Other tags are part of the name.
pub fn bare_name(name: &str) -> &str {
    let bare = name.strip_suffix(LATEST);
    bare.filter(|bare| !bare.is_empty()).unwrap_or(name)
}

/// Adds `:latest` to a name without a tag.
pub fn tagged(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    if last.contains(':') {
        name.to_owned()
    } else {
        format!("{name}{LATEST}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_tag_gets_one() {
        for (name, with_tag) in [
            ("tiny-chat", "tiny-chat:latest"),
            ("org/m", "org/m:latest"),
            ("llama3:70b", "llama3:70b"),
            ("host:5000/m", "host:5000/m:latest"),
        ] {
            assert_eq!(tagged(name), with_tag);
        }
    }

    #[test]
    fn only_the_latest_tag_is_removed_from_a_name() {
        assert_eq!(bare_name("org/m:latest"), "org/m");
        assert_eq!(bare_name("m:7b"), "m:7b");
        assert_eq!(bare_name(":latest"), ":latest");
    }
}
