//! The challenges of `WWW-Authenticate` (RFC 9110, section 11): a server may send several headers, and several challenges in each.

use std::collections::BTreeMap;

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};

/// A way to authenticate that a server offers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    /// In lower case.
    pub scheme: String,
    /// By their names in lower case.
    pub parameters: BTreeMap<String, String>,
}

/// The way to authenticate with a registry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// A token, which the server in these parameters issues.
    Bearer(BTreeMap<String, String>),
    /// The account.
    Basic,
    /// Another way, which is not supported.
    Unknown,
}

impl Scheme {
    /// Prefers a token of a named server, then any token, then the account. Servers that offer nothing get the account.
    pub fn choose(headers: &HeaderMap) -> Scheme {
        let mut all = challenges(headers);
        let is_bearer = |challenge: &Challenge| challenge.scheme == "bearer";
        let named = all.iter().position(|challenge| {
            is_bearer(challenge) && challenge.parameters.contains_key("realm")
        });
        if let Some(bearer) = named.or_else(|| all.iter().position(is_bearer)) {
            return Scheme::Bearer(all.swap_remove(bearer).parameters);
        }
        let has_basic = all.iter().any(|challenge| challenge.scheme == "basic");
        if has_basic || all.is_empty() {
            Scheme::Basic
        } else {
            Scheme::Unknown
        }
    }
}

/// All challenges of all headers, in order.
fn challenges(headers: &HeaderMap) -> Vec<Challenge> {
    let mut all = Vec::new();
    for value in headers.get_all(WWW_AUTHENTICATE) {
        let text = String::from_utf8_lossy(value.as_bytes());
        read_value(&text, &mut all);
    }
    all
}

/// Reads the challenges of one header, up to its first fault.
fn read_value(value: &str, all: &mut Vec<Challenge>) {
    let mut rest = value;
    // A parameter belongs to a challenge of the same header.
    let mut has_scheme = false;
    loop {
        rest = rest.trim_start_matches([',', ' ', '\t']);
        let (name, after) = token(rest);
        if name.is_empty() {
            return;
        }
        if has_scheme && let Some(given) = after.trim_start_matches([' ', '\t']).strip_prefix('=') {
            let Some((value, more)) = parameter_value(given.trim_start_matches([' ', '\t'])) else {
                return;
            };
            if let Some(challenge) = all.last_mut() {
                let name = name.to_ascii_lowercase();
                challenge.parameters.entry(name).or_insert(value);
            }
            rest = more;
            continue;
        }
        all.push(Challenge {
            scheme: name.to_ascii_lowercase(),
            parameters: BTreeMap::new(),
        });
        has_scheme = true;
        rest = without_token68(after);
    }
}

/// Passes over the single value without a name that some schemes have, such as `Negotiate YII=`.
fn without_token68(rest: &str) -> &str {
    let text = rest.trim_start_matches([' ', '\t']);
    if text.len() == rest.len() {
        return rest;
    }
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._~+/".contains(letter);
    let after = text.trim_start_matches(is_plain);
    let has_letters = after.len() < text.len();
    let after = after.trim_start_matches('=');
    let end = after.trim_start_matches([' ', '\t']);
    // Anything else is the name of a parameter.
    if has_letters && (end.is_empty() || end.starts_with(',')) {
        end
    } else {
        rest
    }
}

/// Splits the text after its first token.
fn token(text: &str) -> (&str, &str) {
    let is_token =
        |letter: char| letter.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(letter);
    let rest = text.trim_start_matches(is_token);
    text.split_at(text.len() - rest.len())
}

/// Reads a token or a quoted text. Returns the value and the rest.
fn parameter_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = token(text);
        return (!value.is_empty()).then(|| (value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(letters.next()?.1),
            _ => value.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    fn headers(values: &[&'static str]) -> HeaderMap {
        let values = values.iter().map(|value| HeaderValue::from_static(value));
        values.map(|value| (WWW_AUTHENTICATE, value)).collect()
    }

    /// The challenges as `scheme(name=value)`.
    fn read(values: &[&'static str]) -> Vec<String> {
        let all = challenges(&headers(values)).into_iter();
        let shown = all.map(|challenge| {
            let parameters = challenge.parameters.iter();
            let parameters: Vec<String> = parameters
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            format!("{}({})", challenge.scheme, parameters.join(";"))
        });
        shown.collect()
    }

    #[test]
    fn the_parameters_of_a_challenge_are_read_in_any_order_and_form() {
        let found =
            read(&[r#"Bearer realm="https://a/t",scope="repository:m:pull,push", service=r"#]);
        assert_eq!(
            found,
            ["bearer(realm=https://a/t;scope=repository:m:pull,push;service=r)"]
        );
        let odd = read(&[r#"BEARER  Realm = "a\"b\\c" ,, SERVICE="""#]);
        assert_eq!(odd, [r#"bearer(realm=a"b\c;service=)"#]);
        assert_eq!(read(&["Bearer realm=\"open"]), ["bearer()"]);
    }

    #[test]
    fn all_challenges_of_all_headers_are_read() {
        let one = [r#"Basic realm="a, b", Bearer realm="https://a/t",service="r", Negotiate"#];
        let expected = [
            "basic(realm=a, b)",
            "bearer(realm=https://a/t;service=r)",
            "negotiate()",
        ];
        assert_eq!(read(&one), expected);
        let several = [
            r#"Basic realm="a, b""#,
            r#"bearer realm="https://a/t", service="r""#,
            "Negotiate YII=",
        ];
        assert_eq!(read(&several), expected);
        let token68 = read(&[r#"Negotiate a87421000+/==, Basic realm=x, NTLM"#]);
        assert_eq!(token68, ["negotiate()", "basic(realm=x)", "ntlm()"]);
        assert!(read(&[]).is_empty() && read(&["", ", ,", "=\"x\""]).is_empty());
    }

    #[test]
    fn a_token_is_preferred_to_the_account_and_unknown_schemes_get_neither() {
        let choose = |values: &[&'static str]| Scheme::choose(&headers(values));
        let is_of = |scheme: Scheme, expected: &str| matches!(&scheme, Scheme::Bearer(parameters) if parameters.get("realm").is_some_and(|realm| realm == expected));
        assert!(is_of(choose(&["Basic realm=a", "bEARER realm=t"]), "t"));
        assert!(is_of(choose(&["Bearer error=x, Bearer realm=t"]), "t"));
        assert_eq!(choose(&["Bearer"]), Scheme::Bearer(BTreeMap::new()));
        assert_eq!(choose(&["Negotiate, BASIC realm=\"a\""]), Scheme::Basic);
        assert_eq!(choose(&[]), Scheme::Basic);
        assert_eq!(choose(&["Negotiate"]), Scheme::Unknown);
    }
}
