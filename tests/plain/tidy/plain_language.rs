//! Rates of constructions that read as translated: in comments, per 1,000 paragraphs; in code, by line. The limits are the rates of
//! well-written codebases of the field; no rate may rise above its limit.

use regex::{Regex, RegexBuilder};

/// Name, pattern in a paragraph of comments, and the most paragraphs with it per 1,000.
const IN_COMMENTS: &[(&str, &str, f64)] = &[
    (
        "a clause as a sentence",
        r"^(What|Which|Who|Whose|How|Where|Whether|When|Why|Until when)\b[^?]*$",
        20.0,
    ),
    ("one that", r"\b([Oo]ne|[Tt]hose) (that|which|of)\b", 6.0),
    (", so that", r", so that\b", 2.0),
    ("by then", r"\b(by then|until then)\b", 1.0),
    ("beside", r"\bbeside\b", 1.0),
    ("whole", r"\bwhole\b", 3.0),
    ("at once", r"\bat once\b", 2.0),
    ("goes on", r"\bgo(es)? on\b", 1.0),
    ("is no", r"\b(is|are|was|were) no [a-z]", 4.0),
    ("of its own", r"\bof (its|their|his|our|one's) own\b", 1.0),
    ("nothing of", r"\bnothing (of|that|here)\b", 1.0),
    ("by itself", r"\bby (itself|themselves)\b", 1.0),
    (
        "private words",
        r"\b(told|asked|nobody|somebody|elsewhere|besides|whoever|meanwhile|anew)\b",
        3.0,
    ),
];

/// Common English that the pattern of "is no" does not mean.
const IDIOMS: &[&str] = &["no longer", "no more", "no such", "no need"];

/// Name, pattern in a line of code, and the most lines with it.
const IN_CODE: &[(&str, &str, usize)] = &[
    ("a closure parameter named it", r"\|&?\*?it\|", 0),
    ("a match on a boolean", r"^\s+(true|false) =>", 0),
    ("a function named of", r"\bfn of(<[^>]*>)?\(", 0),
    (
        "answer, where the field says response",
        r"\b\w*answer\w*\b",
        400,
    ),
];

/// Paragraphs of comments, each as one line.
fn paragraphs(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut current = String::new();
    for line in text.lines().chain([""]) {
        let comment = line.trim_start().strip_prefix("//").unwrap_or_default();
        let comment = comment.trim_start_matches(['/', '!']).trim();
        if comment.is_empty() || comment.starts_with("```") || comment.starts_with('|') {
            if !current.is_empty() {
                all.push(std::mem::take(&mut current));
            }
            continue;
        }
        if !current.is_empty() {
            current.push(' ');
        }
        current.push_str(comment);
        for idiom in IDIOMS {
            current = current.replace(idiom, "");
        }
    }
    all
}

fn compiled(pattern: &str) -> Regex {
    RegexBuilder::new(pattern).build().expect("a pattern")
}

/// Rates above their limits in these files' texts.
pub fn breaches<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let paragraphs: Vec<String> = texts.clone().flat_map(paragraphs).collect();
    let thousands = paragraphs.len() as f64 / 1000.0;
    let mut breaches = Vec::new();
    for (name, pattern, most) in IN_COMMENTS {
        let pattern = compiled(pattern);
        let found: Vec<&String> = paragraphs
            .iter()
            .filter(|text| pattern.is_match(text))
            .collect();
        let rate = found.len() as f64 / thousands;
        if rate > *most {
            breaches.push(format!(
                "\"{name}\" is in {rate:.1} of 1,000 comments; at most {most}. The last one: {:?}",
                found.last()
            ));
        }
    }
    for (name, pattern, most) in IN_CODE {
        let pattern = compiled(pattern);
        let lines = texts.clone().flat_map(str::lines);
        let code = lines.filter(|line| !line.trim_start().starts_with("//"));
        let found: Vec<&str> = code.filter(|line| pattern.is_match(line)).collect();
        if found.len() > *most {
            breaches.push(format!(
                "{name}: {} lines; at most {most}. The last one: {:?}",
                found.len(),
                found.last()
            ));
        }
    }
    breaches
}

#[test]
fn text_that_reads_as_translated_exceeds_the_limits() {
    let text = "/// Whether it fits.\n///\n/// One that fits, so that it lies beside the whole.\n///\n/// It is no device, and no longer one.\n\
                fn f() {\n    x.any(|it| it.y)\n}\n";
    let found = breaches([text].into_iter());
    let names = [
        "a clause",
        "one that",
        ", so that",
        "beside",
        "whole",
        "named it",
        "is no",
    ];
    for name in names {
        assert!(
            found.iter().any(|line| line.contains(name)),
            "{name}: {found:?}"
        );
    }
    assert_eq!(found.len(), names.len(), "{found:?}");
    let plain = "/// Returns true if the model fits. Which models do?\nfn f() {}\n";
    assert_eq!(breaches([plain].into_iter()), Vec::<String>::new());
}
