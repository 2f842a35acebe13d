//! The controller's address: one URL, or the URLs of two controllers of which one leads.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::Url;

/// A larger number of controllers for one pool is a mistake.
const ADDRESSES_MAX: usize = 8;
const EXAMPLE: &str = "write one such as https://pool.example.org:8443";

/// One or more URLs, tried in turn. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(Vec<String>);

impl Addresses {
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    pub fn first(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }
}

impl From<&str> for Addresses {
    fn from(address: &str) -> Addresses {
        Addresses(vec![address.to_owned()])
    }
}

impl Serialize for Addresses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [only] => serializer.serialize_str(only),
            all => all.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Addresses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Addresses, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = Addresses;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a URL such as \"https://pool.example.org:8443\", or a list of them")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Addresses, E> {
                Ok(Addresses::from(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Addresses, A::Error> {
                let mut all = Vec::new();
                while let Some(address) = items.next_element::<String>()? {
                    all.push(address);
                }
                match all.len() {
                    1..=ADDRESSES_MAX => Ok(Addresses(all)),
                    count => Err(A::Error::custom(format!(
                        "a list of {count} addresses; write 1 to {ADDRESSES_MAX}"
                    ))),
                }
            }
        }

        deserializer.deserialize_any(Form)
    }
}

impl schemars::JsonSchema for Addresses {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Addresses".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": ["string", "array"],
            "items": { "type": "string" },
            "examples": ["https://pool.example.org:8443"]
        })
    }
}

/// Checks a controller's URL. Errors give an example; `secret_goes` says where a token belongs instead.
pub(crate) fn check_address(text: &str, secret_goes: &str) -> Result<Url, String> {
    let address = Url::parse(text).map_err(|error| format!("is not a URL ({error}); {EXAMPLE}"))?;
    if !matches!(address.scheme(), "https" | "http") || address.host_str().is_none() {
        return Err(format!("must begin with https:// or http://; {EXAMPLE}"));
    }
    if !address.username().is_empty() || address.password().is_some() {
        return Err(format!("contains a user or a password; {secret_goes}"));
    }
    if text.contains(|letter: char| letter.is_whitespace() || letter == '\'') {
        return Err(format!("contains a space or a quote; {EXAMPLE}"));
    }
    Ok(address)
}

/// Returns true for `sha256:` and 64 hexadecimal digits, with or without colons between pairs, as openssl prints them.
pub(crate) fn is_fingerprint(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").unwrap_or_default();
    let pairs: Vec<&str> = digits.split(':').collect();
    let is_hex = |part: &&str| part.chars().all(|digit| digit.is_ascii_hexdigit());
    let is_form = match pairs[..] {
        [all] => all.len() == 64,
        ref pairs => pairs.len() == 32 && pairs.iter().all(|pair| pair.len() == 2),
    };
    is_form && pairs.iter().all(is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_may_have_the_colons_that_openssl_prints() {
        let pairs = vec!["aB"; 32];
        let (plain, colons) = (pairs.concat(), pairs.join(":"));
        assert!(is_fingerprint(&format!("sha256:{plain}")));
        assert!(is_fingerprint(&format!("sha256:{colons}")));
        for wrong in [
            plain.clone(),
            format!("sha256:{plain}a"),
            format!("sha256:{colons}:"),
            format!("sha256:{}", colons.replacen("aB:aB", "aBa:B", 1)),
            format!("sha256:{}", colons.replacen("aB", "xy", 1)),
            format!("sha1:{plain}"),
        ] {
            assert!(!is_fingerprint(&wrong), "{wrong}");
        }
    }

    #[test]
    fn one_address_is_formatted_as_text_and_several_as_a_list() {
        for text in ["\"https://a:1\"", "[\"https://a:1\",\"https://b:1\"]"] {
            let read: Addresses = serde_json::from_str(text).expect("addresses");
            assert_eq!(read.first(), "https://a:1");
            assert_eq!(serde_json::to_string(&read).expect("shown"), text);
        }
        let none = serde_json::from_str::<Addresses>("[]").expect_err("nobody");
        assert!(none.to_string().contains("write 1 to"), "{none}");
    }
}
