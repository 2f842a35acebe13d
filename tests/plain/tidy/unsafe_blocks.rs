//! Finds every `unsafe` block and implementation in Rust source, and the reason above it: a separate comment that begins with
//! `SAFETY:`, or a comment earlier in its file that begins with `SAFETY, for every block`.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Maximum distance in lines between a block and its comment: attributes and the head of a statement may lie between.
const ABOVE_MAX: usize = 8;
const OWN: &str = "// SAFETY:";
const FOR_ALL: &str = "// SAFETY, ";

/// The reasons in a file, in order, each with the number of its blocks; or the lines of blocks without a reason.
pub fn reasons(text: &str) -> Result<Vec<(usize, String)>, Vec<usize>> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let stream: TokenStream = text.parse().expect("Rust source");
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut without = Vec::new();
    for line in blocks(stream) {
        let Some(reason) = own(&lines, line).or_else(|| for_all(&lines, line)) else {
            without.push(line);
            continue;
        };
        match found.iter_mut().find(|(_, known)| *known == reason) {
            Some((count, _)) => *count += 1,
            None => found.push((1, reason)),
        }
    }
    if without.is_empty() {
        Ok(found)
    } else {
        Err(without)
    }
}

/// Lines of `unsafe` before each block and implementation, also in macros.
fn blocks(stream: TokenStream) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut word = None;
    for token in stream {
        let is_block = match &token {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            TokenTree::Ident(name) => *name == "impl",
            _ => false,
        };
        lines.extend(word.take().filter(|_| is_block));
        match token {
            TokenTree::Ident(name) if name == "unsafe" => word = Some(name.span().start().line),
            TokenTree::Group(group) => lines.extend(blocks(group.stream())),
            _ => {}
        }
    }
    lines
}

/// The nearest `SAFETY:` comment of the block; `line` counts from 1.
fn own(lines: &[&str], line: usize) -> Option<String> {
    let above = (line.saturating_sub(1 + ABOVE_MAX)..line).rev();
    let mut above = above.filter(|&at| !lines[at].is_empty());
    let start = above.find(|&at| lines[at].starts_with(OWN))?;
    // A comment before another statement belongs to that statement.
    let ends = |at: usize| lines[at] == "}" && !lines[at].starts_with("//");
    (start..line - 1)
        .all(|at| !ends(at))
        .then(|| comment(lines, start, OWN))
}

/// The nearest `SAFETY, for every block` comment above it.
fn for_all(lines: &[&str], line: usize) -> Option<String> {
    let start = (0..line).rev().find(|&at| lines[at].starts_with(FOR_ALL))?;
    Some(comment(lines, start, FOR_ALL))
}

/// The text of the comment that begins at this line.
fn comment(lines: &[&str], start: usize, beginning: &str) -> String {
    let rest = lines[start + 1..].iter();
    let rest = rest.map_while(|line| line.strip_prefix("// "));
    let first = lines[start].strip_prefix(beginning).unwrap_or_default();
    let words: Vec<&str> = std::iter::once(first.trim()).chain(rest).collect();
    words.join(" ")
}

#[test]
fn every_unsafe_block_gets_the_nearest_reason_and_a_missing_one_is_reported() {
    let text = "// SAFETY, for every block here: a.\nunsafe { x() }\nfn f() {\n    // SAFETY: b,\n    // and c.\n    let y = unsafe { y() };\n}\nfn g() {\n    unsafe { z() }\n}\n";
    let found = reasons(text).unwrap();
    let expected = [(2, "for every block here: a."), (1, "b, and c.")];
    assert_eq!(
        found,
        expected.map(|(count, words)| (count, words.to_owned()))
    );
    let without = "fn f() {\n    // SAFETY: a.\n    unsafe { x() };\n}\nfn g() {\n    unsafe { y() }\n}\nunsafe fn h() {}\nunsafe impl Send for X {}\n// unsafe { no }\n";
    assert_eq!(reasons(without), Err(vec![6, 9]));
}
