//! Determines the quantization of a repository's GGUF files from their names: `m-Q4_K_M.gguf`, `m.q8_0.gguf`,
//! `UD-Q2_K_XL/m-UD-Q2_K_XL-00001-of-00002.gguf`. Pure functions.

use std::collections::{BTreeMap, BTreeSet};

/// Models of a repository by quantization, in the form for `choose`.
pub(super) type Models = BTreeMap<String, BTreeSet<String>>;

/// Groups models, one path each, by quantization. Skips models without one, and files that belong to another model.
pub(super) fn sort(paths: impl IntoIterator<Item = String>) -> Models {
    let mut models = Models::new();
    for path in paths {
        let name = path.rsplit('/').next().unwrap_or_default().to_lowercase();
        if name.contains("mmproj") || name.contains("imatrix") {
            continue;
        }
        if let Some(quantization) = of_path(&path) {
            models.entry(quantization).or_default().insert(path);
        }
    }
    models
}

/// The models with the requested quantization. `Q4_K_M` also matches `UD-Q4_K_M` without an exact match.
pub(super) fn choose<'a>(models: &'a Models, wanted: &str) -> Option<&'a BTreeSet<String>> {
    let wanted = canonical(wanted);
    models
        .get(&wanted)
        .or_else(|| models.get(&format!("UD-{wanted}")))
}

/// The quantization in a file's name, or else in its folder's name.
fn of_path(path: &str) -> Option<String> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.get(..name.len().checked_sub(".gguf".len())?)?;
    let stem = match stem.rsplit_once("-of-") {
        Some((before, count)) if is_number(count) => before
            .rsplit_once('-')
            .filter(|(_, part)| is_number(part))
            .map_or(before, |(before, _)| before),
        _ => stem,
    };
    let folder = folder.rsplit('/').next().unwrap_or_default();
    in_text(stem).or_else(|| in_text(folder))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The last word of the text that is a quantization.
fn in_text(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split(['-', '.']).collect();
    let (at, word) = words.iter().enumerate().rev().find_map(|(at, word)| {
        // Also considers the part after any underscore, as in `tiny_q4_0`.
        let behind = word.match_indices('_').map(|(nth, _)| &word[nth + 1..]);
        let mut parts = std::iter::once(*word).chain(behind);
        Some((at, parts.find(|part| is_quantization(part))?))
    })?;
    let is_dynamic = at > 0 && words[at - 1].eq_ignore_ascii_case("ud");
    let prefix = if is_dynamic { "UD-" } else { "" };
    Some(canonical(&format!("{prefix}{word}")))
}

/// Upper case, with one spelling per form.
fn canonical(text: &str) -> String {
    match text.to_ascii_uppercase().as_str() {
        "FP16" => "F16".to_owned(),
        "FP32" => "F32".to_owned(),
        other => other.to_owned(),
    }
}

/// Returns true for `Q4_0`, `q4_K_M`, `IQ2_XXS`, `TQ1_0`, `Q8`, `BF16`, `MXFP4`, `MXFP4_MOE`.
fn is_quantization(word: &str) -> bool {
    let word = word.to_ascii_uppercase();
    if ["F16", "F32", "F64", "BF16", "FP16", "FP32", "FP8"].contains(&word.as_str()) {
        return true;
    }
    let families = ["IQ", "TQ", "Q", "MXFP", "NVFP"];
    let rest = families.iter().find_map(|family| word.strip_prefix(family));
    let Some(rest) = rest else {
        return false;
    };
    let rest = rest.strip_prefix(|letter: char| letter.is_ascii_digit());
    rest.is_some_and(|rest| {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        rest.is_empty() || rest.starts_with('_') && rest.bytes().all(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantization_is_read_from_the_name_of_the_file_or_its_folder() {
        for (path, expected) in [
            ("Llama-3.2-1B-Instruct-Q4_K_M.gguf", Some("Q4_K_M")),
            ("model.Q8_0.gguf", Some("Q8_0")),
            ("qwen2-0_5b-instruct-q5_k_m.gguf", Some("Q5_K_M")),
            ("tiny_q4_0.GGUF", Some("Q4_0")),
            ("m-UD-IQ2_XXS.gguf", Some("UD-IQ2_XXS")),
            (
                "UD-Q2_K_XL/m-UD-Q2_K_XL-00001-of-00003.gguf",
                Some("UD-Q2_K_XL"),
            ),
            ("Q6_K/m-00002-of-00003.gguf", Some("Q6_K")),
            ("Phi-3-mini-4k-instruct-fp16.gguf", Some("F16")),
            ("gpt-oss-20b-mxfp4.gguf", Some("MXFP4")),
            ("m-Q4_0_4_4.gguf", Some("Q4_0_4_4")),
            ("m.i1-IQ1_S.gguf", Some("IQ1_S")),
            ("BF16/m.gguf", Some("BF16")),
            ("Qwen3-4B.gguf", None),
            ("m-of-2.gguf", None),
            ("q.gguf", None),
            ("x", None),
        ] {
            assert_eq!(of_path(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn projectors_are_skipped_and_dynamic_quantizations_replace_missing_ones() {
        let paths = [
            "m-Q4_K_M.gguf",
            "m-UD-Q4_K_M.gguf",
            "m-UD-Q2_K.gguf",
            "mmproj-F16.gguf",
        ];
        let models = sort(paths.map(str::to_owned));
        let one = |wanted: &str| choose(&models, wanted).map(|found| found.first().cloned());
        assert_eq!(one("q4_k_m"), Some(Some("m-Q4_K_M.gguf".to_owned())));
        assert_eq!(one("ud-q4_k_m"), Some(Some("m-UD-Q4_K_M.gguf".to_owned())));
        assert_eq!(one("Q2_K"), Some(Some("m-UD-Q2_K.gguf".to_owned())));
        assert_eq!(one("F16"), None);
        assert_eq!(models.len(), 3);
    }
}
