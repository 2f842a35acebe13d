//! Checks the regular expressions of custom tools and writes them in a form that engines enforce as a `pattern` in JSON Schema.

use regex_syntax::ast;

/// The reason that an expression does not become a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GrammarError {
    /// Engines do not support it: it is too long, or uses look-around, back-references or word boundaries.
    Unsupported,
    /// The expression is invalid.
    Invalid(String),
}

/// Maximum length of an expression; engines need seconds for longer ones.
const EXPRESSION_BYTES_MAX: usize = 16 << 10;

/// Checks an expression and returns a form that all engines accept: `(?:…)` becomes `(…)`, and anchors at both ends are removed.
pub(super) fn checked(expression: &str) -> Result<String, GrammarError> {
    if expression.len() > EXPRESSION_BYTES_MAX {
        return Err(GrammarError::Unsupported);
    }
    let mut parser = ast::parse::ParserBuilder::new().nest_limit(64).build();
    if let Err(error) = parser.parse(expression) {
        return Err(match error.kind() {
            ast::ErrorKind::UnsupportedBackreference
            | ast::ErrorKind::UnsupportedLookAround
            | ast::ErrorKind::NestLimitExceeded(_) => GrammarError::Unsupported,
            kind => GrammarError::Invalid(kind.to_string()),
        });
    }
    let mut plain = String::with_capacity(expression.len());
    let mut letters = expression.chars().peekable();
    let mut in_class = false;
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                let escaped = letters.next().unwrap_or('\\');
                // Word boundaries match no text.
                if "bBAzZ".contains(escaped) {
                    return Err(GrammarError::Unsupported);
                }
                plain.extend(['\\', escaped]);
                continue;
            }
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class && letters.peek() == Some(&'?') => {
                letters.next();
                if letters.next() != Some(':') {
                    return Err(GrammarError::Unsupported);
                }
                plain.push('(');
                continue;
            }
            '^' if !in_class && plain.is_empty() => continue,
            '$' if !in_class && letters.peek().is_none() => continue,
            '^' | '$' if !in_class => return Err(GrammarError::Unsupported),
            _ => {}
        }
        plain.push(letter);
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_becomes_a_pattern_that_all_engines_accept() {
        for (expression, pattern) in [
            ("^(?:a|b)$", "(a|b)"),
            (r"[(?:^$]+\(\?", r"[(?:^$]+\(\?"),
            ("a{2,3}", "a{2,3}"),
        ] {
            assert_eq!(checked(expression), Ok(pattern.to_owned()));
        }
    }

    #[test]
    fn an_unsupported_expression_is_distinguished_from_an_invalid_one() {
        let long = "a".repeat(EXPRESSION_BYTES_MAX + 1);
        let deep = "(".repeat(100) + &")".repeat(100);
        for unsupported in [
            r"a\b", "a$b", "a^", "(?=a)", "(?i)a", r"(a)\1", &long, &deep,
        ] {
            assert_eq!(checked(unsupported), Err(GrammarError::Unsupported));
        }
        for invalid in ["(", "a{2", "[b-a]", "*"] {
            let error = checked(invalid);
            assert!(matches!(error, Err(GrammarError::Invalid(_))), "{error:?}");
        }
    }
}
