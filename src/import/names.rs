//! Makes names of models and files valid and unique.

use std::collections::BTreeSet;

use catalog::model_id_problem;

/// The names that are taken.
#[derive(Debug, Default)]
pub struct Names {
    names: BTreeSet<String>,
}

impl Names {
    /// Returns the name if it is valid and free, or the nearest that is, and reserves it.
    pub fn take(&mut self, wanted: &str) -> String {
        let sound = match model_id_problem(wanted) {
            None => wanted.to_owned(),
            Some(_) => sound(wanted),
        };
        let mut name = sound.clone();
        let mut more = 1;
        while !self.names.insert(name.clone()) {
            more += 1;
            name = format!("{sound}-{more}");
        }
        name
    }

    /// Reserves an alias, or returns the reason why it is not possible.
    pub fn take_alias(&mut self, alias: &str) -> Result<(), String> {
        if let Some(problem) = model_id_problem(alias) {
            return Err(problem);
        }
        if self.names.insert(alias.to_owned()) {
            Ok(())
        } else {
            Err("another model or alias has this name".to_owned())
        }
    }
}

/// Replaces invalid characters: `qwen3:8b` becomes `qwen3-8b`. Keeps only the first slash.
fn sound(wanted: &str) -> String {
    let mut name = String::new();
    for letter in wanted.chars() {
        let next = match letter {
            letter if letter.is_ascii_alphanumeric() || "._-".contains(letter) => letter,
            '/' if !name.contains('/') && !name.is_empty() => '/',
            _ => '-',
        };
        // Each part must begin with a letter or digit.
        let begins_part = name.is_empty() || name.ends_with('/');
        if begins_part && !next.is_ascii_alphanumeric() || next == '-' && name.ends_with('-') {
            continue;
        }
        name.push(next);
    }
    let name = name.trim_end_matches(['/', '-']);
    match name.char_indices().nth(150) {
        Some((end, _)) => name[..end].to_owned(),
        None if name.is_empty() => "model".to_owned(),
        None => name.to_owned(),
    }
}

/// The last part of a path.
pub fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A file name for each model, in the same order; names differ by more than case.
pub fn file_names<'a>(models: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let mut names = Vec::new();
    for model in models {
        let base = model.replace('/', "--").replace(':', "-");
        let mut name = format!("{base}.yaml");
        let mut more = 1;
        while !taken.insert(name.to_lowercase()) {
            more += 1;
            name = format!("{base}-{more}.yaml");
        }
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_model_name_is_converted_to_a_valid_one() {
        let mut names = Names::default();
        for (wanted, name) in [
            ("org/qwen2.5-7b", "org/qwen2.5-7b"),
            ("../../etc/passwd", "etc/passwd"),
            ("a/b/c", "a/b-c"),
            ("Größe XL", "Gr-e-XL"),
            ("…", "model"),
            ("a/b-c", "a/b-c-2"),
        ] {
            assert_eq!(names.take(wanted), name, "{wanted}");
        }
        assert!(names.take(&"x".repeat(500)).len() <= 200);
        assert!(names.take_alias("gpt-4o").is_ok());
        assert!(names.take_alias("gpt-4o").is_err());
        assert!(names.take_alias("a b").is_err());
    }

    #[test]
    fn file_names_differ_by_more_than_case() {
        let names = file_names(["org/m", "org--m", "ORG--M"].into_iter());
        assert_eq!(names, ["org--m.yaml", "org--m-2.yaml", "ORG--M-3.yaml"]);
    }
}
