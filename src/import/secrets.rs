//! Recognises values that may be secrets by their names. Such values are never written to a file or a message; a variable replaces
//! them.

/// Parts of names whose values are secret.
const PARTS: [&str; 7] = [
    "KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "CREDENTIAL",
    "AUTH",
];

/// Returns true for names such as `HF_TOKEN`, `openai-api-key`, `DB_PASSWORD`.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let mut parts = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    parts.any(|part| {
        let singular = part.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let singular = singular.strip_suffix('S').unwrap_or(singular);
        PARTS.contains(&singular) || singular.ends_with("APIKEY") || singular.ends_with("TOKEN")
    })
}

/// A variable name for a secret of this owner: `openrouter` becomes `OPENROUTER_API_KEY`.
pub fn variable_for(owner: &str) -> String {
    let letters = owner.chars().map(|letter| match letter {
        letter if letter.is_ascii_alphanumeric() => letter.to_ascii_uppercase(),
        _ => '_',
    });
    let name: String = letters.collect();
    let name = name.trim_matches('_');
    match name.chars().next() {
        None => "REMOTE_API_KEY".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("_{name}_API_KEY"),
        Some(_) => format!("{name}_API_KEY"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_recognized_by_their_names() {
        for name in [
            "HF_TOKEN",
            "API_KEY_1",
            "openai-api-key",
            "DB_PASSWORD",
            "AUTH",
            "OPENAI_APIKEY",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "HOME",
            "MONKEY_PATCH",
            "CUDA_VISIBLE_DEVICES",
            "LD_LIBRARY_PATH",
            "TOKENIZERS_PARALLELISM",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn an_api_key_variable_is_named_after_its_provider() {
        assert_eq!(variable_for("open-router.ai"), "OPEN_ROUTER_AI_API_KEY");
        assert_eq!(variable_for("4o"), "_4O_API_KEY");
        assert_eq!(variable_for("…"), "REMOTE_API_KEY");
    }
}
