//! Finds words of a private language in Rust files: as parts of names, and in comments. A reader who knows serving
//! systems should need no glossary.

use proc_macro2::{TokenStream, TokenTree};

/// Words that must not be part of a name: use message, response or event for `told`; request or caller for `asked`.
const IN_NAMES: &[&str] = &[
    "asked",
    "besides",
    "ear",
    "elsewhere",
    "hopeless",
    "knock",
    "mouth",
    "newcomer",
    "newcomers",
    "nobody",
    "said",
    "somebody",
    "told",
    "whoever",
];
/// Names of JSON fields and columns, which are permitted.
const KEPT: &[&str] = &["asked_by"];

const IN_COMMENTS: &[&str] = &[
    "besides",
    "elsewhere",
    "newcomer",
    "newcomers",
    "nobody",
    "said",
    "somebody",
    "told",
    "whoever",
];
/// Longer names are test names.
const PARTS_MAX: usize = 5;

/// Lines with such a word, and the word.
pub fn found(text: &str) -> Vec<(usize, String)> {
    let mut found = in_comments(text);
    let tokens: TokenStream = text.parse().expect("Rust source");
    in_names(tokens, &mut found);
    found.sort();
    found.dedup();
    found
}

fn in_comments(text: &str) -> Vec<(usize, String)> {
    let comments = text.lines().enumerate().filter_map(|(number, line)| {
        let comment = line.trim_start().strip_prefix("//")?;
        // A value of a configuration key.
        (!comment.contains("nobody (`")).then_some((number + 1, comment))
    });
    let words = comments.flat_map(|(number, comment)| {
        let words = comment.split(|letter: char| !letter.is_alphabetic());
        words.map(move |word| (number, word.to_lowercase()))
    });
    words
        .filter(|(_, word)| IN_COMMENTS.contains(&word.as_str()))
        .collect()
}

fn in_names(tokens: TokenStream, found: &mut Vec<(usize, String)>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => in_names(group.stream(), found),
            TokenTree::Ident(name) => {
                let text = name.to_string();
                let parts = parts(&text);
                let is_private = parts.iter().any(|part| IN_NAMES.contains(&part.as_str()));
                if is_private && parts.len() <= PARTS_MAX && !KEPT.contains(&text.as_str()) {
                    found.push((name.span().start().line, text));
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// `SeatRequests` and `seat_requests` have two parts.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for letter in name.chars() {
        if letter == '_' || (letter.is_uppercase() && was_lower) {
            parts.push(String::new());
        }
        was_lower = letter.is_lowercase();
        if let Some(last) = parts.last_mut()
            && letter != '_'
        {
            last.extend(letter.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[test]
fn private_words_are_found_only_in_names_and_comments() {
    let text = "/// What is told.\nfn told_so(asked_by: u8) { let x = \"nobody\"; println!(\"{}\", said); }\n\
                struct WhatWasAsked; // told here\nfn a_long_name_of_a_test_is_told_as_a_sentence() {}\n";
    let found: Vec<(usize, String)> = found(text);
    let expected = [
        (1, "told"),
        (2, "said"),
        (2, "told_so"),
        (3, "WhatWasAsked"),
    ];
    let expected = expected.map(|(line, word)| (line, word.to_owned()));
    assert_eq!(found, expected);
}
