//! Text templates with the placeholders `{instruction}` and `{system}`. Inserted text is not searched for placeholders.

/// One template of a prompt format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Instruction,
    System,
}

const PLACES: [(&str, Piece); 2] = [
    ("{instruction}", Piece::Instruction),
    ("{system}", Piece::System),
];

impl Template {
    /// Doubled braces stand for single ones if the entire text follows Python's `format` syntax; otherwise each brace is literal.
    pub fn read(text: &str) -> Template {
        Template(doubled(text).unwrap_or_else(|| literal(text)))
    }

    pub fn has_instruction(&self) -> bool {
        self.0.contains(&Piece::Instruction)
    }

    pub fn has_system(&self) -> bool {
        self.0.contains(&Piece::System)
    }

    pub fn fill(&self, instruction: &str, system: &str) -> String {
        let texts = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => text,
            Piece::Instruction => instruction,
            Piece::System => system,
        });
        texts.collect()
    }
}

fn place_at(text: &str) -> Option<(&'static str, Piece)> {
    PLACES.into_iter().find(|(name, _)| text.starts_with(name))
}

fn push(pieces: &mut Vec<Piece>, text: &str) {
    match pieces.last_mut() {
        Some(Piece::Text(last)) => last.push_str(text),
        _ if text.is_empty() => {}
        _ => pieces.push(Piece::Text(text.to_owned())),
    }
}

/// Parses the text like Python's `format`; `None` if that would fail.
fn doubled(text: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        push(&mut pieces, &rest[..at]);
        rest = &rest[at..];
        let taken = if rest.starts_with("{{") || rest.starts_with("}}") {
            push(&mut pieces, &rest[..1]);
            2
        } else {
            let (name, piece) = place_at(rest)?;
            pieces.push(piece);
            name.len()
        };
        rest = &rest[taken..];
    }
    push(&mut pieces, rest);
    Some(pieces)
}

fn literal(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        push(&mut pieces, &rest[..at]);
        rest = &rest[at..];
        let taken = match place_at(rest) {
            Some((name, piece)) => {
                pieces.push(piece);
                name.len()
            }
            None => {
                push(&mut pieces, "{");
                1
            }
        };
        rest = &rest[taken..];
    }
    push(&mut pieces, rest);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str) -> String {
        Template::read(template).fill("I {system}", "S {instruction}")
    }

    #[test]
    fn placeholders_are_filled_once_and_braces_in_values_are_literal() {
        assert_eq!(
            filled("<{system}|{instruction}|{instruction}>"),
            "<S {instruction}|I {system}|I {system}>"
        );
    }

    #[test]
    fn doubled_braces_become_single_braces() {
        assert_eq!(filled("{{a}} {instruction}"), "{a} I {system}");
    }

    #[test]
    fn single_braces_are_kept_literally() {
        assert_eq!(
            filled(r#"{"a": {"b": "{instruction}"}}"#),
            r#"{"a": {"b": "I {system}"}}"#
        );
        assert_eq!(filled("{ {instruction} }"), "{ I {system} }");
        assert_eq!(filled("{instruct {instruction}"), "{instruct I {system}");
    }
}
