//! Reads Rust source as far as the layer check needs it: tokens without comments and literals, and
//! every path that is imported or named, resolved to where it leads. Never judges what it finds.

/// A word, `::`, or a single character, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

/// A path in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub target: Target,
    pub line: usize,
    /// Under `#[cfg(test)]`.
    pub test: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// From the crate's root: `["pool", "ids", "Bytes"]`.
    Crate(Vec<String>),
    /// As written; its first segment is another crate or a name known here.
    Other(Vec<String>),
}

/// Splits source into tokens. Comments vanish; a literal becomes the token `"`.
pub fn tokens(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let mut out = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < chars.len() {
        let start = at;
        let text = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => {
                at = find(&chars, at, |rest| rest[0] == '\n');
                None
            }
            '/' if chars.get(at + 1) == Some(&'*') => {
                at = block_comment(&chars, at);
                None
            }
            '"' => {
                at = quoted(&chars, at + 1, '"');
                Some("\"".to_owned())
            }
            '\'' => {
                let (end, literal) = character_or_lifetime(&chars, at);
                at = end;
                literal.then(|| "\"".to_owned())
            }
            c if c.is_alphanumeric() || c == '_' => {
                at = find(&chars, at, |rest| {
                    !rest[0].is_alphanumeric() && rest[0] != '_'
                });
                let word: String = chars[start..at].iter().collect();
                let raw = matches!(word.as_str(), "r" | "br" | "cr");
                match (raw.then(|| raw_string(&chars, at)).flatten(), word.as_str()) {
                    (Some(end), _) => {
                        at = end;
                        Some("\"".to_owned())
                    }
                    // The prefix of a literal that follows, or of a raw name.
                    (None, "b" | "c") if matches!(chars.get(at), Some('"' | '\'')) => None,
                    (None, "r") if chars.get(at) == Some(&'#') => {
                        at += 1;
                        None
                    }
                    (None, _) => Some(word),
                }
            }
            ':' if chars.get(at + 1) == Some(&':') => {
                at += 2;
                Some("::".to_owned())
            }
            c => {
                at += 1;
                (!c.is_whitespace()).then(|| c.to_string())
            }
        };
        out.extend(text.map(|text| Token { text, line }));
        line += chars[start..at].iter().filter(|&&c| c == '\n').count();
    }
    out
}

fn find(chars: &[char], from: usize, end: impl Fn(&[char]) -> bool) -> usize {
    (from..chars.len())
        .find(|&at| end(&chars[at..]))
        .unwrap_or(chars.len())
}

fn block_comment(chars: &[char], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (at, depth) = (at + 2, depth + 1),
            ('*', Some('/')) => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The end of a literal whose inside begins at `from`.
fn quoted(chars: &[char], from: usize, end: char) -> usize {
    let mut at = from;
    while at < chars.len() && chars[at] != end {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(chars.len())
}

/// The end of `#…#"…"#…#` at `from`, if one begins there.
fn raw_string(chars: &[char], from: usize) -> Option<usize> {
    let hashes = chars[from..].iter().take_while(|&&c| c == '#').count();
    if chars.get(from + hashes) != Some(&'"') {
        return None;
    }
    let end = find(chars, from + hashes + 1, |rest| {
        rest[0] == '"' && rest[1..].iter().take_while(|&&c| c == '#').count() >= hashes
    });
    Some((end + 1 + hashes).min(chars.len()))
}

/// The end of what a quote at `from` begins, and whether it is a literal rather than a lifetime.
fn character_or_lifetime(chars: &[char], from: usize) -> (usize, bool) {
    let escaped = chars.get(from + 1) == Some(&'\\');
    if escaped || chars.get(from + 2) == Some(&'\'') {
        return (quoted(chars, from + 1, '\''), true);
    }
    let end = find(chars, from + 1, |rest| {
        !rest[0].is_alphanumeric() && rest[0] != '_'
    });
    (end, false)
}

/// Every path in `tokens` of a file whose module path is `module`.
pub fn references(tokens: &[Token], module: &[String]) -> Vec<Reference> {
    let mut reader = Reader {
        tokens,
        at: 0,
        nesting: 0,
        modules: module.iter().map(|name| (name.clone(), 0)).collect(),
        test: None,
        found: Vec::new(),
    };
    reader.read();
    reader.found
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    /// Open brackets of all kinds.
    nesting: usize,
    /// The module path, each with the nesting inside it; 0 for those that are files.
    modules: Vec<(String, usize)>,
    /// Inside an item under `#[cfg(test)]`: the nesting it stands in.
    test: Option<usize>,
    found: Vec<Reference>,
}

impl Reader<'_> {
    fn word(&self, ahead: usize) -> &str {
        self.tokens
            .get(self.at + ahead)
            .map_or("", |token| token.text.as_str())
    }

    fn is_name(&self, ahead: usize) -> bool {
        let first = self.word(ahead).chars().next();
        first.is_some_and(|c| c.is_alphabetic() || c == '_')
    }

    fn read(&mut self) {
        while self.at < self.tokens.len() {
            match self.word(0) {
                "#" if self.word(1) == "[" && self.word(2) == "cfg" => self.attribute(),
                "mod" if self.is_name(1) && self.word(2) == "{" => {
                    self.nesting += 1;
                    self.modules.push((self.word(1).to_owned(), self.nesting));
                    self.at += 3;
                }
                "use" if self.is_name(1) || matches!(self.word(1), "::" | "{") => {
                    self.at += 1;
                    self.use_tree(Vec::new());
                }
                "{" | "(" | "[" => self.open(),
                "}" | ")" | "]" => self.close(),
                ";" => {
                    if self.test == Some(self.nesting) {
                        self.test = None;
                    }
                    self.at += 1;
                }
                "::" => {
                    // Behind a name or `>` it goes on with a path; otherwise it begins one.
                    self.at += 1;
                    if self.is_name(0) {
                        self.path();
                    }
                }
                _ if self.is_name(0) && self.word(1) == "::" => self.path(),
                _ => self.at += 1,
            }
        }
    }

    fn open(&mut self) {
        self.nesting += 1;
        self.at += 1;
    }

    fn close(&mut self) {
        let brace = self.word(0) == "}";
        if self
            .modules
            .last()
            .is_some_and(|(_, inside)| *inside == self.nesting && *inside > 0)
        {
            self.modules.pop();
        }
        self.nesting = self.nesting.saturating_sub(1);
        if brace && self.test == Some(self.nesting) {
            self.test = None;
        }
        self.at += 1;
    }

    /// Marks what follows `#[cfg(test)]` or `#[cfg(all(test, …))]`.
    fn attribute(&mut self) {
        let from = self.at + 2;
        let end = (from..self.tokens.len())
            .find(|&at| self.tokens[at].text == "]")
            .unwrap_or(self.tokens.len());
        let words: Vec<&str> = self.tokens[from..end]
            .iter()
            .map(|token| token.text.as_str())
            .collect();
        if words.contains(&"test") && !words.contains(&"not") && self.test.is_none() {
            self.test = Some(self.nesting);
        }
        self.at = end + 1;
    }

    /// One branch of a `use`, behind `prefix`.
    fn use_tree(&mut self, prefix: Vec<String>) {
        let line = self.tokens.get(self.at).map_or(0, |token| token.line);
        let mut path = prefix;
        loop {
            match self.word(0) {
                "::" => self.at += 1,
                "{" => {
                    self.at += 1;
                    while !matches!(self.word(0), "}" | "") {
                        self.use_tree(path.clone());
                        if self.word(0) == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                "*" => {
                    self.at += 1;
                    break;
                }
                "as" => self.at += 2,
                "," | "}" | ";" | "" => break,
                _ if self.is_name(0) => {
                    path.push(self.word(0).to_owned());
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }
        self.record(path, line);
    }

    /// A path outside of `use`, of at least one name.
    fn path(&mut self) {
        let line = self.tokens[self.at].line;
        let mut path = vec![self.word(0).to_owned()];
        self.at += 1;
        while self.word(0) == "::" && self.is_name(1) {
            path.push(self.word(1).to_owned());
            self.at += 2;
        }
        // The generic arguments behind a last `::` are read as what they are.
        if self.word(0) == "::" {
            self.at += 1;
        }
        self.record(path, line);
    }

    fn record(&mut self, path: Vec<String>, line: usize) {
        let here: Vec<String> = self.modules.iter().map(|(name, _)| name.clone()).collect();
        let mut names = path.iter().peekable();
        let mut base = match names.peek().map(|name| name.as_str()) {
            Some("crate") => Some(Vec::new()),
            Some("self" | "super") => Some(here),
            _ => None,
        };
        if let Some(base) = &mut base {
            while let Some(name) =
                names.next_if(|name| matches!(name.as_str(), "crate" | "self" | "super"))
            {
                if name == "super" {
                    base.pop();
                }
            }
            base.extend(names.cloned());
        }
        self.found.push(Reference {
            target: base.map_or(Target::Other(path), Target::Crate),
            line,
            test: self.test.is_some(),
        });
    }
}
