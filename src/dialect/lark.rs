//! Parses Lark grammars: rules, terminals and imports.
//! One file because tokens, expressions and rules are one small parser.

use std::collections::BTreeMap;

use super::grammar::GrammarError;

/// Maximum length of a definition.
const DEFINITION_BYTES_MAX: usize = 32 << 10;
/// Maximum nesting of parentheses.
const DEPTH_MAX: usize = 64;
/// Maximum repeat count of an item.
const REPEATED_MAX: u32 = 1000;
/// Maximum number of repetition marks after an item.
const REPEATS_MAX: usize = 4;

/// A parsed grammar.
#[derive(Debug, Default)]
pub(super) struct Lark {
    pub rules: BTreeMap<String, Item>,
    /// Imported names of Lark's library, by their local names.
    pub imports: BTreeMap<String, String>,
}

/// The pattern of a rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    Text {
        text: String,
        any_case: bool,
    },
    /// A character range.
    Letters(char, char),
    Expression(String),
    Rule(String),
    Row(Vec<Item>),
    Choice(Vec<Item>),
    Repeated {
        item: Box<Item>,
        least: u32,
        most: Option<u32>,
    },
}

impl Item {
    /// Returns true for the empty pattern.
    pub fn is_empty(&self) -> bool {
        matches!(self, Item::Row(items) if items.is_empty())
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    Text(String, bool),
    Expression(String),
    Number(u32),
    /// `%import` and other directives.
    Directive(String),
    /// `:`, `|`, `(`, `)`, `[`, `]`, `?`, `*`, `+`, `~`, `,`, `.`, `..`, `->`
    Mark(&'static str),
}

const MARKS: [&str; 14] = [
    "..", "->", ":", "|", "(", ")", "[", "]", "?", "*", "+", "~", ",", ".",
];

/// Parses a grammar.
pub(super) fn read(definition: &str) -> Result<Lark, GrammarError> {
    if definition.len() > DEFINITION_BYTES_MAX {
        return Err(GrammarError::NotRegular);
    }
    let tokens = tokens(definition)?;
    let mut reader = Reader {
        tokens: &tokens,
        at: 0,
        depth: 0,
    };
    let mut lark = Lark::default();
    while reader.at < tokens.len() {
        reader.statement(&mut lark)?;
    }
    Ok(lark)
}

fn wrong(why: impl Into<String>) -> GrammarError {
    GrammarError::Wrong(why.into())
}

/// The tokens, each with a flag that is true at the beginning of a line.
fn tokens(text: &str) -> Result<Vec<(Token, bool)>, GrammarError> {
    let mut found = Vec::new();
    let (mut rest, mut is_first) = (text, true);
    loop {
        let behind = rest.trim_start();
        is_first |= rest[..rest.len() - behind.len()].contains('\n');
        rest = behind;
        let Some(letter) = rest.chars().next() else {
            return Ok(found);
        };
        if rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            rest = &rest[end..];
            continue;
        }
        let (token, length) = match letter {
            '"' => quoted(rest)?,
            '/' => expression(rest)?,
            '%' => {
                let end = end_of_word(&rest[1..]) + 1;
                (Token::Directive(rest[1..end].to_owned()), end)
            }
            '0'..='9' => {
                let end = rest.find(|letter: char| !letter.is_ascii_digit());
                let end = end.unwrap_or(rest.len());
                let number = rest[..end].parse();
                (
                    Token::Number(number.map_err(|_| wrong("a number is too large"))?),
                    end,
                )
            }
            // Marks before a rule's name that do not change its matches.
            '?' | '!' if is_first => {
                rest = &rest[1..];
                continue;
            }
            _ if letter.is_alphabetic() || letter == '_' => {
                let end = end_of_word(rest);
                (Token::Name(rest[..end].to_owned()), end)
            }
            // Rule templates and attributes of other parsers.
            '{' | '}' => return Err(GrammarError::NotRegular),
            _ => {
                let mark = MARKS.into_iter().find(|mark| rest.starts_with(mark));
                let mark = mark.ok_or_else(|| wrong(format!("unexpected {letter:?}")))?;
                (Token::Mark(mark), mark.len())
            }
        };
        found.push((token, is_first));
        is_first = false;
        rest = &rest[length..];
    }
}

fn end_of_word(text: &str) -> usize {
    let is_of_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.find(|letter| !is_of_word(letter))
        .unwrap_or(text.len())
}

/// Reads a quoted string and returns its length including the quotes.
fn quoted(rest: &str) -> Result<(Token, usize), GrammarError> {
    let mut text = String::new();
    let mut letters = rest.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => {
                let end = at + 1;
                let any_case = rest[end..].starts_with('i');
                return Ok((Token::Text(text, any_case), end + usize::from(any_case)));
            }
            '\n' => break,
            '\\' => {
                let (_, escaped) = letters.next().ok_or_else(unended)?;
                let digits = match escaped {
                    'n' => {
                        text.push('\n');
                        continue;
                    }
                    't' => {
                        text.push('\t');
                        continue;
                    }
                    'r' => {
                        text.push('\r');
                        continue;
                    }
                    'f' => {
                        text.push('\u{c}');
                        continue;
                    }
                    'x' => 2,
                    'u' => 4,
                    'U' => 8,
                    other => {
                        text.push(other);
                        continue;
                    }
                };
                let code: String = letters
                    .by_ref()
                    .take(digits)
                    .map(|(_, letter)| letter)
                    .collect();
                let letter = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
                text.push(
                    letter.ok_or_else(|| wrong(format!("\\{escaped}{code} is not a character")))?,
                );
            }
            _ => text.push(letter),
        }
    }
    Err(unended())
}

fn unended() -> GrammarError {
    wrong("a quoted string is not closed")
}

/// Reads an expression between slashes and returns its length including slashes and flags.
fn expression(rest: &str) -> Result<(Token, usize), GrammarError> {
    let mut escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\n' => break,
            '/' => {
                let flags = end_of_word(&rest[at + 1..]);
                let text = rest[1..at].replace("\\/", "/");
                return match flags {
                    0 => Ok((Token::Expression(text), at + 1)),
                    _ => Err(GrammarError::NotRegular),
                };
            }
            _ => {}
        }
    }
    Err(wrong("an expression between slashes is not closed"))
}

struct Reader<'a> {
    tokens: &'a [(Token, bool)],
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn takes(&mut self, mark: &str) -> bool {
        let is_it = matches!(self.peek(), Some(Token::Mark(found)) if *found == mark);
        self.at += usize::from(is_it);
        is_it
    }

    fn name(&mut self) -> Result<String, GrammarError> {
        match self.peek().cloned() {
            Some(Token::Name(name)) => {
                self.at += 1;
                Ok(name)
            }
            _ => Err(wrong("a name is missing")),
        }
    }

    /// Returns true at the beginning of a statement.
    fn is_at_statement(&self) -> bool {
        match self.tokens.get(self.at) {
            None | Some((Token::Directive(_), _)) => true,
            Some((Token::Name(_), true)) => {
                let next = self.tokens.get(self.at + 1).map(|(token, _)| token);
                matches!(next, Some(Token::Mark(":" | ".")))
            }
            _ => false,
        }
    }

    fn statement(&mut self, lark: &mut Lark) -> Result<(), GrammarError> {
        if let Some(Token::Directive(word)) = self.peek().cloned() {
            self.at += 1;
            return match word.as_str() {
                "import" => self.import(lark),
                // Free text, imported rules, and syntax of other parsers.
                _ => Err(GrammarError::NotRegular),
            };
        }
        let name = self.name()?;
        if self.takes(".") {
            // A terminal's priority, which does not change the language.
            match self.peek() {
                Some(Token::Number(_)) => self.at += 1,
                _ => return Err(wrong(format!("the priority of {name} is not a number"))),
            }
        }
        if !self.takes(":") {
            return Err(wrong(format!("missing colon after {name}")));
        }
        let item = self.choice()?;
        if !self.is_at_statement() {
            return Err(wrong(format!("the rule {name} is incomplete")));
        }
        lark.rules.insert(name, item);
        Ok(())
    }

    /// `common.NAME`, `common.NAME -> OTHER`, or `common (A, B)`.
    fn import(&mut self, lark: &mut Lark) -> Result<(), GrammarError> {
        if self.takes(".") || self.name()? != "common" {
            return Err(GrammarError::NotRegular);
        }
        if self.takes("(") {
            loop {
                let name = self.name()?;
                lark.imports.insert(name.clone(), name);
                if self.takes(")") {
                    return Ok(());
                }
                if !self.takes(",") {
                    return Err(wrong("a list of imports is not closed"));
                }
            }
        }
        if !self.takes(".") {
            return Err(wrong("an import names nothing"));
        }
        let name = self.name()?;
        let own = if self.takes("->") {
            self.name()?
        } else {
            name.clone()
        };
        lark.imports.insert(own, name);
        Ok(())
    }

    fn choice(&mut self) -> Result<Item, GrammarError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(GrammarError::NotRegular);
        }
        let mut all = vec![self.row()?];
        while self.takes("|") {
            all.push(self.row()?);
        }
        self.depth -= 1;
        Ok(Item::Choice(all))
    }

    fn row(&mut self) -> Result<Item, GrammarError> {
        let mut items = Vec::new();
        while !self.is_at_statement() {
            let Some(item) = self.one()? else {
                break;
            };
            items.push(self.repeated(item)?);
        }
        // An alias for the result, which does not change the language.
        if self.takes("->") {
            self.name()?;
        }
        Ok(Item::Row(items))
    }

    fn one(&mut self) -> Result<Option<Item>, GrammarError> {
        let Some(token) = self.peek().cloned() else {
            return Ok(None);
        };
        let item = match token {
            Token::Name(name) => Item::Rule(name),
            Token::Expression(expression) => Item::Expression(expression),
            Token::Text(text, any_case) => {
                self.at += 1;
                return if !self.takes("..") {
                    Ok(Some(Item::Text { text, any_case }))
                } else {
                    self.letters(&text).map(Some)
                };
            }
            Token::Mark(opening @ ("(" | "[")) => {
                self.at += 1;
                let inner = self.choice()?;
                let closing = if opening == "(" { ")" } else { "]" };
                if !self.takes(closing) {
                    return Err(wrong(format!("a {opening} has no {closing}")));
                }
                return Ok(Some(match opening {
                    "(" => inner,
                    _ => Item::Repeated {
                        item: Box::new(inner),
                        least: 0,
                        most: Some(1),
                    },
                }));
            }
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(item))
    }

    fn letters(&mut self, first: &str) -> Result<Item, GrammarError> {
        let last = match self.peek() {
            Some(Token::Text(last, false)) => last.clone(),
            _ => return Err(wrong("a character range has no end")),
        };
        self.at += 1;
        let one = |text: &str| {
            let mut letters = text.chars();
            letters.next().filter(|_| letters.next().is_none())
        };
        match (one(first), one(&last)) {
            (Some(first), Some(last)) if first <= last => Ok(Item::Letters(first, last)),
            _ => Err(wrong("a character range must end after it begins")),
        }
    }

    fn repeated(&mut self, mut item: Item) -> Result<Item, GrammarError> {
        for _ in 0..REPEATS_MAX {
            let (least, most) = if self.takes("?") {
                (0, Some(1))
            } else if self.takes("*") {
                (0, None)
            } else if self.takes("+") {
                (1, None)
            } else if self.takes("~") {
                let least = self.number()?;
                let most = if self.takes("..") {
                    self.number()?
                } else {
                    least
                };
                if least > most || most == 0 {
                    return Err(wrong(format!("~{least}..{most} repeats nothing")));
                }
                (least, Some(most))
            } else {
                return Ok(item);
            };
            item = Item::Repeated {
                item: Box::new(item),
                least,
                most,
            };
        }
        Err(GrammarError::NotRegular)
    }

    fn number(&mut self) -> Result<u32, GrammarError> {
        match self.peek() {
            Some(Token::Number(number)) if *number <= REPEATED_MAX => {
                let number = *number;
                self.at += 1;
                Ok(number)
            }
            Some(Token::Number(_)) => Err(GrammarError::NotRegular),
            _ => Err(wrong("a number of repetitions is missing")),
        }
    }
}
