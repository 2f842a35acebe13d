//! The credential in the head of a request: a key, a person's token, or a session cookie, which stands for the key or person that
//! opened the session. Browsers attach cookies to requests from any page, so a cookie only counts for this service's own pages, and
//! changes need a header that no form can send.

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use crate::auth::cross_site;
use crate::auth::sign_on::Person;
use crate::credentials::sessions::{Holder, Open, Secret, Stamp};
use crate::state::App;
use access::limits::place_of;
use api_types::error::Failure;
use edge::record;
use store::KeyRecord;

pub(crate) const COOKIE: &str = "model-pool-session";
pub(crate) const CSRF: HeaderName = HeaderName::from_static("x-model-pool-csrf");

/// Headers that contain only a key, in order of preference. Anthropic, Azure and Google clients send them.
pub const KEY_HEADERS: [&str; 3] = ["x-api-key", "api-key", "x-goog-api-key"];

/// The authenticated sender, before authorization.
#[derive(Debug)]
pub enum Credential {
    Nothing,
    Key(Box<KeyRecord>),
    Person(Person),
    /// A bearer text that is not a valid key.
    Unknown,
    /// A cookie whose session has ended.
    Ended,
}

/// The credential, and the session that it came from.
#[derive(Debug)]
pub struct Sent {
    pub credential: Credential,
    pub session: Option<Open>,
}

impl Sent {
    /// # Errors
    /// The token is invalid; the cookie was sent by a page of another origin, or for a change without the header.
    pub async fn new(parts: &Parts, app: &App) -> Result<Sent, Failure> {
        let without = |credential| {
            Ok(Sent {
                credential,
                session: None,
            })
        };
        if let Some(text) = bearer(&parts.headers) {
            if let Some(person) = Person::new(Some(text), parts, app).await? {
                return without(Credential::Person(person));
            }
            return without(match app.keys.find(text) {
                Some(key) => Credential::Key(Box::new(key)),
                None => Credential::Unknown,
            });
        }
        if parts.headers.contains_key(header::AUTHORIZATION) {
            return without(Credential::Nothing);
        }
        let Some(secret) = cookie(&parts.headers, COOKIE) else {
            return without(Credential::Nothing);
        };
        let now = app.handle.clock().wall();
        let Some(open) = app.sessions.find(secret, now) else {
            return without(Credential::Ended);
        };
        check(parts, app)?;
        let credential = match &open.holder {
            Holder::Key(stamp) => match app.keys.find_id(stamp.id) {
                Some(key) if Stamp::from_record(&key) == **stamp => {
                    record::note_key(key.id, &key.name, key.allowed.log_prompts);
                    Credential::Key(Box::new(key))
                }
                _ => {
                    app.sessions.end(open.id);
                    return without(Credential::Ended);
                }
            },
            Holder::Person(identity) => {
                Credential::Person(Person::by_session(identity.clone(), parts))
            }
        };
        Ok(Sent {
            credential,
            session: Some(open),
        })
    }
}

/// The key or token in the head.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then_some(key.trim());
    }
    let value = KEY_HEADERS.iter().find_map(|name| headers.get(*name))?;
    value.to_str().ok()
}

/// The address for which limits count the current request.
pub fn place() -> String {
    record::client().map_or_else(|| "unknown".to_owned(), |client| place_of(client.address))
}

/// Returns true if a session is still valid, for long-lived responses.
pub(crate) fn is_still_open(open: &Open, app: &App) -> bool {
    let now = app.handle.clock().wall();
    let counts = match &open.holder {
        Holder::Key(stamp) => stamp.counts(&app.keys.all(), now),
        Holder::Person(identity) => now < identity.expires,
    };
    counts && app.sessions.is_open(open.id, now)
}

fn check(parts: &Parts, app: &App) -> Result<(), Failure> {
    let does = "uses a session cookie";
    cross_site::check_own(parts, app.edge.has_tls(), does)?;
    let changes = !matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let is_meant = parts.headers.get(&CSRF).is_some_and(|value| value == "1");
    if changes && !is_meant {
        return Err(Failure::forbidden(
            "csrf",
            format!(
                "a change with a session cookie needs the header `{CSRF}: 1`; send it, or send a key as `Authorization: Bearer mp-…` instead of the cookie"
            ),
        ));
    }
    Ok(())
}

/// The value of a cookie. Browsers send the cookie with the longest path first.
pub fn cookie<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter();
    let texts = lines.filter_map(|line| line.to_str().ok());
    let mut pairs = texts.flat_map(|text| text.split(';'));
    pairs.find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == wanted && !value.is_empty()).then_some(value)
    })
}

/// The content and lifetime of a cookie.
pub struct Cookie<'a> {
    pub name: &'a str,
    pub value: &'a str,
    pub same_site: &'static str,
    pub seconds: u64,
}

impl<'a> Cookie<'a> {
    /// The session cookie.
    pub fn of_session(secret: &'a str, seconds: u64) -> Cookie<'a> {
        Cookie {
            name: COOKIE,
            value: secret,
            same_site: "Strict",
            seconds,
        }
    }
}

/// Returns the `Set-Cookie` value of a session that lasts `seconds`. The cookie has no `Path`: browsers then use the folder of the
/// route as they see it, which includes a proxy's prefix.
pub fn set_cookie(secret: &Secret, seconds: u64, parts: &Parts, app: &App) -> Option<HeaderValue> {
    let cookie = Cookie::of_session(secret.reveal(), seconds);
    set_cookie_of(&cookie, is_secure_page(parts), None, app)
}

/// The `Set-Cookie` value that removes the session cookie.
pub fn clear_cookie(parts: &Parts, app: &App) -> Option<HeaderValue> {
    set_cookie_of(&Cookie::of_session("", 0), is_secure_page(parts), None, app)
}

/// If a proxy terminates TLS, the page's origin shows it.
fn is_secure_page(parts: &Parts) -> bool {
    let origin = parts.headers.get(header::ORIGIN);
    origin.is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

/// `is_secure`: the browser uses TLS, which may end at a proxy. `path`: the path below which the browser sends the cookie; `None`
/// means the folder of the request.
pub fn set_cookie_of(
    cookie: &Cookie<'_>,
    is_secure: bool,
    path: Option<&str>,
    app: &App,
) -> Option<HeaderValue> {
    let path = path.map_or_else(String::new, |path| format!("Path={path}; "));
    let secure = if app.edge.has_tls() || is_secure {
        "; Secure"
    } else {
        ""
    };
    let Cookie {
        name,
        value,
        same_site,
        seconds,
    } = cookie;
    let text =
        format!("{name}={value}; {path}Max-Age={seconds}; HttpOnly; SameSite={same_site}{secure}");
    let mut line = HeaderValue::from_str(&text).ok()?;
    line.set_sensitive(true);
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_cookie_is_found_among_other_cookies() {
        let with = |lines: &[&str]| {
            let lines = lines.iter();
            HeaderMap::from_iter(lines.map(|line| (header::COOKIE, line.parse().unwrap())))
        };
        for (lines, found) in [
            (&[][..], None),
            (&["a=b"], None),
            (&["model-pool-session=x"], Some("x")),
            (&["a=b; model-pool-session=x; c=d"], Some("x")),
            (&["a=b", "c=d;model-pool-session=x"], Some("x")),
            (&["not-model-pool-session=x"], None),
            (&["model-pool-session="], None),
        ] {
            assert_eq!(cookie(&with(lines), COOKIE), found, "{lines:?}");
        }
    }
}
