//! Translates the grammars of custom tools (Lark, or plain regular expressions) into regular expressions that engines can enforce
//! on a string in JSON. A recursive rule is expanded as often as fits: every text that matches the expression also matches the
//! grammar, and the missing texts are reported. Grammars that cannot be translated are refused.

use std::collections::BTreeMap;

use regex_syntax::ast;

use super::budget::{Budget, OF_ONE, Spent};
use super::lark::{self, Item};

/// The reason that a grammar has no expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GrammarError {
    /// The grammar is not regular, or uses syntax that is not supported here.
    NotRegular,
    /// The grammar is invalid.
    Wrong(String),
}

impl From<Spent> for GrammarError {
    fn from(_: Spent) -> GrammarError {
        GrammarError::NotRegular
    }
}

/// Maximum length of an expression; engines need seconds for longer ones.
const EXPRESSION_BYTES_MAX: usize = 16 << 10;
/// Maximum depth of rules that use other rules.
const DEPTH_MAX: usize = 128;
/// Maximum nesting of a rule within itself.
const NESTED_MAX: usize = 6;
/// Cost of checking an expression relative to writing it.
pub(super) const CHECKED_TIMES: usize = 4;

/// Terminals of Lark's common library, as expressions.
const COMMON: &[(&str, &str)] = &[
    ("CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"),
    ("CR", r"\r"),
    ("DECIMAL", r"([0-9]+\.[0-9]*|\.[0-9]+)"),
    ("DIGIT", "[0-9]"),
    ("ESCAPED_STRING", r#""([^"\\\n]|\\[^\n])*""#),
    (
        "FLOAT",
        r"([0-9]+[eE][+\-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+\-]?[0-9]+)?)",
    ),
    ("HEXDIGIT", "[a-fA-F0-9]"),
    ("INT", "[0-9]+"),
    ("LCASE_LETTER", "[a-z]"),
    ("LETTER", "[a-zA-Z]"),
    ("LF", r"\n"),
    ("NEWLINE", r"(\r?\n)+"),
    ("NUMBER", r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+\-]?[0-9]+)?"),
    ("SIGNED_INT", r"[+\-]?[0-9]+"),
    (
        "SIGNED_NUMBER",
        r"[+\-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+\-]?[0-9]+)?",
    ),
    ("UCASE_LETTER", "[A-Z]"),
    ("WORD", "[a-zA-Z]+"),
    ("WS", r"[ \t\f\r\n]+"),
    ("WS_INLINE", r"[ \t]+"),
];

/// The translation of a grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expression {
    pub text: String,
    /// Nesting depth up to which recursive rules are expanded; `None` without recursion.
    pub nested: Option<usize>,
}

/// Translates a Lark grammar within the remaining budget.
pub(super) fn expression(definition: &str, left: &mut Budget) -> Result<Expression, GrammarError> {
    let grammar = lark::read(definition)?;
    let mut deepest = Err(GrammarError::NotRegular);
    // An expression that does not fit at one depth does not fit at greater depths either. A rule without a complete text at the
    // first depth has none at any depth.
    for nested in 1..=NESTED_MAX {
        let budget = left.at_most(OF_ONE);
        let mut writer = Writer {
            rules: &grammar.rules,
            imports: &grammar.imports,
            written: BTreeMap::new(),
            open: BTreeMap::new(),
            depth: 0,
            nested,
            returns: 0,
            budget,
        };
        let written = writer.rule("start");
        left.spend(budget, writer.budget);
        let is_recursive = writer.returns > 0;
        match written {
            Ok(Some(text)) => {
                let nested = is_recursive.then_some(nested);
                deepest = Ok(Expression { text, nested });
            }
            Ok(None) | Err(GrammarError::NotRegular) => break,
            Err(error) => return Err(error),
        }
        if !is_recursive {
            break;
        }
    }
    deepest
}

/// Checks an expression and returns a form that other engines accept: `(?:…)` becomes `(…)`, and anchors at both ends are removed.
pub(super) fn checked(expression: &str) -> Result<String, GrammarError> {
    if expression.len() > EXPRESSION_BYTES_MAX {
        return Err(GrammarError::NotRegular);
    }
    let mut parser = ast::parse::ParserBuilder::new().nest_limit(64).build();
    if let Err(error) = parser.parse(expression) {
        return Err(match error.kind() {
            ast::ErrorKind::UnsupportedBackreference
            | ast::ErrorKind::UnsupportedLookAround
            | ast::ErrorKind::NestLimitExceeded(_) => GrammarError::NotRegular,
            kind => GrammarError::Wrong(kind.to_string()),
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
                    return Err(GrammarError::NotRegular);
                }
                plain.extend(['\\', escaped]);
                continue;
            }
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class && letters.peek() == Some(&'?') => {
                letters.next();
                if letters.next() != Some(':') {
                    return Err(GrammarError::NotRegular);
                }
                plain.push('(');
                continue;
            }
            '^' if !in_class && plain.is_empty() => continue,
            '$' if !in_class && letters.peek().is_none() => continue,
            '^' if !in_class => return Err(GrammarError::NotRegular),
            '$' if !in_class => return Err(GrammarError::NotRegular),
            _ => {}
        }
        plain.push(letter);
    }
    Ok(plain)
}

/// Writes the rules of one grammar.
struct Writer<'a> {
    rules: &'a BTreeMap<String, Item>,
    /// Lark library names of imported terminals.
    imports: &'a BTreeMap<String, String>,
    written: BTreeMap<&'a str, String>,
    /// Number of open expansions of each rule.
    open: BTreeMap<&'a str, usize>,
    /// Sum of all open expansions.
    depth: usize,
    /// Maximum nesting of a rule within itself.
    nested: usize,
    /// Number of times that an open rule was reached again.
    returns: usize,
    budget: Budget,
}

impl<'a> Writer<'a> {
    /// Writes a rule. Returns `None` if no text of the rule is complete within the allowed depth.
    fn rule(&mut self, name: &str) -> Result<Option<String>, GrammarError> {
        if let Some(known) = self.written.get(name) {
            self.budget.write(known.len())?;
            return Ok(Some(known.clone()));
        }
        let Some((name, item)) = self.rules.get_key_value(name) else {
            let common = self.imports.get(name);
            let known = common.and_then(|name| COMMON.iter().find(|(known, _)| known == name));
            return match (known, common) {
                (Some((_, expression)), _) => Ok(Some((*expression).to_owned())),
                (None, Some(_)) => Err(GrammarError::NotRegular),
                (None, None) => Err(GrammarError::Wrong(format!(
                    "it has no rule {}",
                    name.chars().take(60).collect::<String>()
                ))),
            };
        };
        let name = name.as_str();
        if self.depth >= DEPTH_MAX {
            return Err(GrammarError::NotRegular);
        }
        let within = self.open.get(name).copied().unwrap_or(0);
        self.returns += usize::from(within > 0);
        if within > self.nested {
            return Ok(None);
        }
        let returns = self.returns;
        self.open.insert(name, within + 1);
        self.depth += 1;
        let text = self.item(item)?;
        self.open.insert(name, within);
        self.depth -= 1;
        let Some(text) = text else {
            return Ok(None);
        };
        self.fits(text.len())?;
        self.budget.write(text.len())?;
        // The text of a recursive rule depends on its depth, so only other rules are cached.
        if self.returns == returns && within == 0 {
            self.written.insert(name, text.clone());
        }
        Ok(Some(text))
    }

    fn item(&mut self, item: &Item) -> Result<Option<String>, GrammarError> {
        self.budget.step()?;
        Ok(Some(match item {
            Item::Text { text, any_case } => {
                self.budget.write(text.len())?;
                literal(text, *any_case)
            }
            Item::Letters(first, last) => format!("[{}-{}]", in_class(*first), in_class(*last)),
            Item::Expression(expression) => {
                self.budget.write(CHECKED_TIMES * expression.len())?;
                grouped(checked(expression)?)
            }
            Item::Rule(name) => match self.rule(name)? {
                Some(text) => {
                    self.budget.write(text.len())?;
                    grouped(text)
                }
                None => return Ok(None),
            },
            Item::Row(items) => {
                let mut text = String::new();
                for item in items {
                    let Some(next) = self.item(item)? else {
                        return Ok(None);
                    };
                    self.budget.write(next.len())?;
                    self.fits(text.len() + next.len())?;
                    text += &next;
                }
                text
            }
            Item::Choice(items) => {
                let is_optional = items.iter().any(Item::is_empty);
                let mut texts = Vec::new();
                let mut bytes = 0;
                for item in items.iter().filter(|item| !item.is_empty()) {
                    let Some(text) = self.item(item)? else {
                        continue;
                    };
                    self.budget.write(text.len())?;
                    bytes += text.len() + 1;
                    self.fits(bytes)?;
                    texts.push(text);
                }
                let text = match texts.as_slice() {
                    [] if is_optional => return Ok(Some(String::new())),
                    [] => return Ok(None),
                    [one] if !is_optional => return Ok(Some(one.clone())),
                    all => format!("({})", all.join("|")),
                };
                self.fits(text.len())?;
                if is_optional { text + "?" } else { text }
            }
            Item::Repeated { item, least, most } => {
                let text = match self.item(item)? {
                    Some(text) => text,
                    None if *least == 0 => String::new(),
                    None => return Ok(None),
                };
                if text.is_empty() {
                    return Ok(Some(text));
                }
                let count = match (least, most) {
                    (0, Some(1)) => "?".to_owned(),
                    (0, None) => "*".to_owned(),
                    (1, None) => "+".to_owned(),
                    (least, None) => format!("{{{least},}}"),
                    (least, Some(most)) if least == most => format!("{{{least}}}"),
                    (least, Some(most)) => format!("{{{least},{most}}}"),
                };
                self.budget.write(text.len())?;
                format!("{}{count}", grouped(text))
            }
        }))
    }

    fn fits(&self, bytes: usize) -> Result<(), GrammarError> {
        if bytes <= EXPRESSION_BYTES_MAX {
            Ok(())
        } else {
            Err(GrammarError::NotRegular)
        }
    }
}

/// Wraps the text in a group unless it already is a single item.
fn grouped(text: String) -> String {
    let is_one_letter = text.chars().count() == 1
        || (text.starts_with('\\') && text.chars().count() == 2)
        || (text.starts_with('[') && text.find(']') == Some(text.len() - 1));
    if is_one_letter || text.is_empty() {
        text
    } else {
        format!("({text})")
    }
}

fn literal(text: &str, any_case: bool) -> String {
    let mut written = String::new();
    for letter in text.chars() {
        match letter {
            '\n' => written += r"\n",
            '\r' => written += r"\r",
            '\t' => written += r"\t",
            _ if any_case && letter.is_ascii_alphabetic() => {
                let (lower, upper) = (letter.to_ascii_lowercase(), letter.to_ascii_uppercase());
                written.extend(['[', lower, upper, ']']);
            }
            _ => {
                if r"\^$.|?*+()[]{}".contains(letter) {
                    written.push('\\');
                }
                written.push(letter);
            }
        }
    }
    written
}

fn in_class(letter: char) -> String {
    if r"\]^-[".contains(letter) {
        format!("\\{letter}")
    } else {
        letter.to_string()
    }
}

#[cfg(test)]
mod tests;
