//! Removes this machine's folders from messages to users: only the last component of a path in an engine's message is kept.
//! Messages to administrators are not changed.

/// Shorter paths are routes or reveal nothing.
const PARTS_MIN: usize = 3;
const BEFORE: [char; 8] = ['"', '\'', '`', '(', '[', '<', '=', ','];
const AFTER: [char; 10] = ['"', '\'', '`', ')', ']', '>', ',', ';', ':', '|'];

/// Replaces `/absolute/path/to/last` by `…/last`.
pub fn without_folders(text: &str) -> String {
    let mut shortened = String::with_capacity(text.len());
    let mut rest = text;
    let mut begins = true;
    while let Some(next) = rest.chars().next() {
        let end = rest
            .find(|letter: char| letter.is_whitespace() || AFTER.contains(&letter))
            .unwrap_or(rest.len());
        let path = rest[..end].trim_end_matches(['.', '/']);
        if begins && next == '/' && path.matches('/').count() >= PARTS_MIN {
            shortened.push('…');
            shortened.push_str(&path[path.rfind('/').unwrap_or(0)..]);
            rest = &rest[path.len()..];
            begins = false;
            continue;
        }
        begins = next.is_whitespace() || BEFORE.contains(&next);
        shortened.push(next);
        rest = &rest[next.len_utf8()..];
    }
    shortened
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_a_text_are_reduced_to_their_last_component() {
        for (text, expected) in [
            (
                "/srv/lab/models/m/config.json: it is no JSON; download it again",
                "…/config.json: it is no JSON; download it again",
            ),
            ("cannot open '/srv/lab/m.gguf'.", "cannot open '…/m.gguf'."),
            ("see /srv/lab/models/.", "see …/models/."),
            ("(at=/a/b/c, /d/e/f)", "(at=…/c, …/f)"),
            ("…ü /a/b/ü", "…ü …/ü"),
        ] {
            assert_eq!(without_folders(text), expected);
        }
    }

    #[test]
    fn routes_fractions_and_urls_are_not_shortened() {
        for text in [
            "",
            "/health answers 404",
            "POST /v1/embeddings",
            "and/or either/or/neither/nor",
            "http://127.0.0.1:8080/llm/v1/models",
            "12 / 4 / 3 / 1",
        ] {
            assert_eq!(without_folders(text), text);
        }
    }
}
