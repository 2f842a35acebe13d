//! The section `auth.oidc`: the issuer whose tokens are accepted in addition to the pool's own keys, the permissions of its groups,
//! and sign-in from browsers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::{Host, Url};

use crate::problems::Problem;
use crate::values::Length;
use pool::Span;

const LEEWAY_MAX: Span = Span::from_secs(600);
const REFRESH: (Span, Span) = (Span::from_secs(60), Span::from_secs(86_400));
/// A larger number is a mistake.
const GROUPS_MAX: usize = 1_000;
/// The maximum equals the duration of a session with a key.
const SESSION: (Span, Span) = (Span::from_secs(300), Span::from_secs(12 * 3600));
/// The end of the redirect address to which the issuer sends browsers back, below the base path.
pub const SIGNED_ON: &str = "/session/signed-on";

/// Bearer tokens of an OpenID Connect issuer, accepted in addition to the pool's own keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OidcSection {
    /// The issuer as named in its tokens (`iss`); `/.well-known/openid-configuration` below it is read. `https`, or `http` on this
    /// machine.
    pub issuer: String,
    /// The value of `aud` in tokens for this pool.
    pub audience: String,
    /// The claim with a person's groups: its name, or a path such as `realm_access.roles`.
    #[serde(default = "groups_claim")]
    pub groups_claim: String,
    /// The claim with the name for logs and the audit log; without it the subject is used.
    #[serde(default = "name_claim")]
    pub name_claim: String,
    /// Allowed difference between the issuer's clock and this machine's, 0s to 10m.
    #[serde(default = "leeway")]
    pub leeway: Length,
    /// Interval for refreshing the issuer's keys, 1m to 1d. An unknown key triggers an immediate refresh.
    #[serde(default = "refresh")]
    pub refresh: Length,
    /// Permissions of the members of each group. Members of several groups have the permissions of all of them.
    #[serde(default)]
    pub groups: BTreeMap<String, GrantSection>,
    /// Permissions of everyone with a token for this pool; null: none without a group.
    #[serde(default)]
    pub everybody: Option<GrantSection>,
    /// A PEM file with certificate authorities to trust for the issuer, in addition to the system's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Lets people sign in at the issuer from the dashboard; null: the dashboard only accepts keys and tokens.
    #[serde(default)]
    pub browser: Option<BrowserSection>,
}

/// The dashboard as a client of the issuer (authorization code with PKCE).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BrowserSection {
    /// The client's name at the issuer. ID tokens must have it in `aud`.
    pub client_id: String,
    /// The file with the client's secret, read at each sign-in; null: a public client.
    #[serde(default)]
    pub client_secret_file: Option<PathBuf>,
    /// The redirect address that is registered at the issuer, ending in `/session/signed-on`; null: derived from the request, which
    /// is correct unless a proxy terminates TLS.
    #[serde(default)]
    pub redirect_uri: Option<String>,
    /// The scopes to request. `openid` must be among them.
    #[serde(default = "scopes")]
    pub scopes: Vec<String>,
    /// Duration of a session, 5m to 12h. Groups are read again when it ends.
    #[serde(default = "session")]
    pub session: Length,
}

/// Permissions of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantSection {
    /// `user`: use models; `admin`: also administer the pool; `viewer`: read everything that administrators can read; `group-admin`: use
    /// models, and administer the group of `groups` that has the person's claim, and the groups below it.
    pub role: GrantRole,
    /// Models by name, with `*` for any characters.
    #[serde(default = "everything")]
    pub models: Vec<String>,
    /// Routes below the base path such as `/v1/chat/completions`, with `*` for any characters.
    #[serde(default = "everything")]
    pub routes: Vec<String>,
}

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum GrantRole {
    User,
    Admin,
    Viewer,
    #[serde(rename = "group-admin")]
    GroupAdmin,
}

impl GrantRole {
    /// Returns true if this role includes the permissions of the other.
    pub fn covers(self, other: GrantRole) -> bool {
        match self {
            GrantRole::Admin => true,
            GrantRole::GroupAdmin => matches!(other, GrantRole::GroupAdmin | GrantRole::User),
            GrantRole::User | GrantRole::Viewer => self == other,
        }
    }
}

fn groups_claim() -> String {
    "groups".to_owned()
}

fn name_claim() -> String {
    "preferred_username".to_owned()
}

fn leeway() -> Length {
    Length::from_secs(30)
}

fn refresh() -> Length {
    Length::from_secs(3600)
}

fn scopes() -> Vec<String> {
    ["openid", "profile"].map(str::to_owned).to_vec()
}

fn session() -> Length {
    Length::from_secs(8 * 3600)
}

fn everything() -> Vec<String> {
    vec!["*".to_owned()]
}

/// Checks an address that secrets or keys come from: it must use `https`, or `http` within this machine.
pub fn trusted_address(text: &str) -> Result<Url, String> {
    let address = Url::parse(text).map_err(|error| error.to_string())?;
    let is_local = match address.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    match address.scheme() {
        "https" => {}
        "http" if is_local => {}
        "http" => return Err("http is only for this machine; write https".to_owned()),
        _ => return Err("it must begin with https://".to_owned()),
    }
    if !address.username().is_empty() || address.password().is_some() {
        return Err("it must not contain a user or a password".to_owned());
    }
    Ok(address)
}

/// All problems of this section.
pub(crate) fn problems(section: &OidcSection) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut unless = |holds: bool, key: &str, message: String| {
        if !holds {
            problems.push(Problem::new(format!("auth.oidc.{key}"), message));
        }
    };
    match trusted_address(&section.issuer) {
        Ok(address) => unless(
            address.query().is_none() && address.fragment().is_none(),
            "issuer",
            "contains `?` or `#`; write a URL such as https://login.example.org/realms/lab"
                .to_owned(),
        ),
        Err(why) => unless(
            false,
            "issuer",
            format!("is not a URL such as https://login.example.org/realms/lab: {why}"),
        ),
    }
    let texts = [
        ("audience", &section.audience),
        ("groups_claim", &section.groups_claim),
        ("name_claim", &section.name_claim),
    ];
    for (key, text) in texts {
        unless(
            !text.trim().is_empty(),
            key,
            "is empty; write the text that the issuer uses".to_owned(),
        );
    }
    let (leeway, refresh) = (section.leeway, section.refresh);
    unless(
        leeway.0 <= LEEWAY_MAX,
        "leeway",
        format!("is {leeway}; allowed: 0s to 10m"),
    );
    unless(
        (REFRESH.0..=REFRESH.1).contains(&refresh.0),
        "refresh",
        format!("is {refresh}; allowed: 1m to 1d"),
    );
    unless(
        !section.groups.is_empty() || section.everybody.is_some(),
        "groups",
        "is empty and auth.oidc.everybody null, so no user has any permission; write for example groups: {staff: {role: admin}}".to_owned(),
    );
    unless(
        section.groups.len() <= GROUPS_MAX,
        "groups",
        format!(
            "has {} groups; allowed: up to {GROUPS_MAX}",
            section.groups.len()
        ),
    );
    let named = section.groups.iter();
    let named = named.map(|(name, grant)| (format!("groups.{name}"), grant));
    let everybody = section.everybody.iter();
    for (key, grant) in named.chain(everybody.map(|grant| ("everybody".to_owned(), grant))) {
        for (list, patterns) in [("models", &grant.models), ("routes", &grant.routes)] {
            unless(
                !patterns.is_empty() && patterns.iter().all(|pattern| !pattern.trim().is_empty()),
                &format!("{key}.{list}"),
                "is empty or contains an empty text; remove it to allow all".to_owned(),
            );
        }
        unless(
            grant
                .routes
                .iter()
                .all(|route| route.starts_with(['/', '*'])),
            &format!("{key}.routes"),
            "has a route that does not begin with `/`; write one such as /v1/chat/completions"
                .to_owned(),
        );
    }
    if let Some(browser) = &section.browser {
        let found = browser_problems(browser).into_iter();
        problems.extend(
            found.map(|(key, message)| Problem::new(format!("auth.oidc.browser.{key}"), message)),
        );
    }
    problems
}

fn browser_problems(browser: &BrowserSection) -> Vec<(&'static str, String)> {
    let mut problems = Vec::new();
    if browser.client_id.trim().is_empty() {
        let message = "is empty; write the client's name at the issuer".to_owned();
        problems.push(("client_id", message));
    }
    if let Some(text) = &browser.redirect_uri {
        let address = Url::parse(text).ok().filter(|address| {
            matches!(address.scheme(), "http" | "https")
                && address.has_host()
                && address.path().ends_with(SIGNED_ON)
                && address.query().is_none()
                && address.fragment().is_none()
        });
        if address.is_none() {
            let message = format!(
                "is not the address of this pool such as https://llm.example.org/llm{SIGNED_ON}"
            );
            problems.push(("redirect_uri", message));
        }
    }
    let is_scope = |scope: &String| {
        !scope.is_empty()
            && scope
                .bytes()
                .all(|byte| (0x21..0x7f).contains(&byte) && byte != b'"')
    };
    if !browser.scopes.iter().any(|scope| scope == "openid") || !browser.scopes.iter().all(is_scope)
    {
        let message =
            "must contain openid, and each scope is one word; write for example [openid, profile, groups]"
                .to_owned();
        problems.push(("scopes", message));
    }
    if !(SESSION.0..=SESSION.1).contains(&browser.session.0) {
        let message = format!("is {}; allowed: 5m to 12h", browser.session);
        problems.push(("session", message));
    }
    problems
}

#[cfg(test)]
mod tests;
