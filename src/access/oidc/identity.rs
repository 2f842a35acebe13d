//! The identity of a token, and the permissions of its groups.

use sha2::{Digest, Sha256};
use wildmatch::WildMatch;

use config::{GrantRole, GrantSection, OidcSection};
use pool::{KeyId, Time};

/// A bit that the store's keys never have.
const OF_A_PERSON: u64 = 1 << 63;

/// A person or a program that an issuer has authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The issuer's permanent identifier for it.
    pub subject: String,
    /// For display.
    pub name: String,
    /// Its id in the queues, equal for all tokens of the same subject.
    pub key: KeyId,
    /// Values of the groups claim.
    pub claims: Vec<String>,
    /// Has at least one element.
    pub grants: Vec<Grant>,
    /// End of the token's validity, including the leeway.
    pub expires: Time,
}

/// The permissions of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// `None` stands for the permissions of everybody.
    pub group: Option<String>,
    pub role: GrantRole,
    /// Names, with `*` for any characters.
    pub models: Vec<String>,
    pub routes: Vec<String>,
}

impl Identity {
    /// Returns true if a grant covers this role and this route, a path below the base path.
    pub fn may(&self, role: GrantRole, route: &str) -> bool {
        self.grants
            .iter()
            .any(|grant| grant.role.covers(role) && grant.has_route(route))
    }

    /// Returns true if a grant covers this model on this route.
    pub fn may_use(&self, model: &str, route: &str) -> bool {
        self.grants
            .iter()
            .any(|grant| grant.has_route(route) && matches(&grant.models, model))
    }
}

impl Grant {
    /// The permissions of these groups and of everybody.
    pub(super) fn all(section: &OidcSection, groups: &[String]) -> Vec<Grant> {
        let of_groups = section.groups.iter();
        let of_groups = of_groups.filter(|(name, _)| groups.contains(name));
        let of_groups = of_groups.map(|(name, grant)| Grant::new(Some(name), grant));
        let of_everybody = section.everybody.iter();
        let of_everybody = of_everybody.map(|grant| Grant::new(None, grant));
        of_groups.chain(of_everybody).collect()
    }

    fn new(group: Option<&str>, section: &GrantSection) -> Grant {
        Grant {
            group: group.map(str::to_owned),
            role: section.role,
            models: section.models.clone(),
            routes: section.routes.clone(),
        }
    }

    fn has_route(&self, route: &str) -> bool {
        matches(&self.routes, route)
    }
}

fn matches(patterns: &[String], text: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| WildMatch::new(pattern).matches(text))
}

/// The top bit and 63 bits of a digest. People share queues fairly with keys and with each other.
pub(super) fn key_of(issuer: &str, subject: &str) -> KeyId {
    let mut digest = Sha256::new();
    digest.update((issuer.len() as u64).to_be_bytes());
    digest.update(issuer);
    digest.update(subject);
    let digest: [u8; 32] = digest.finalize().into();
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    KeyId(u64::from_be_bytes(first) | OF_A_PERSON)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(grants: &[(GrantRole, &str, &str)]) -> Identity {
        let grant = |(role, models, routes): &(GrantRole, &str, &str)| Grant {
            group: None,
            role: *role,
            models: vec![(*models).to_owned()],
            routes: vec![(*routes).to_owned()],
        };
        Identity {
            subject: "s".to_owned(),
            name: "n".to_owned(),
            key: key_of("https://a.example", "s"),
            claims: Vec::new(),
            grants: grants.iter().map(grant).collect(),
            expires: Time(1),
        }
    }

    #[test]
    fn a_single_grant_must_cover_the_complete_request() {
        let both = person(&[
            (GrantRole::User, "tiny-*", "/v1/*"),
            (GrantRole::Admin, "big", "/admin/*"),
        ]);
        assert!(both.may(GrantRole::User, "/v1/chat/completions"));
        assert!(both.may(GrantRole::Admin, "/admin/load"));
        assert!(!both.may(GrantRole::Admin, "/v1/chat/completions"));
        assert!(both.may_use("tiny-chat", "/v1/chat/completions"));
        assert!(!both.may_use("big", "/v1/chat/completions"));
        let admin = person(&[(GrantRole::Admin, "*", "*")]);
        assert!(admin.may(GrantRole::User, "/v1/models") && admin.may_use("any", "/v1/rerank"));
    }

    #[test]
    fn the_permissions_of_groups_are_those_of_the_present_section() {
        let section = serde_json::json!({
            "issuer": "https://a.example", "audience": "pool",
            "groups": {"staff": {"role": "admin"}, "students": {"role": "user", "models": ["tiny-*"]}},
        });
        let section: OidcSection = serde_json::from_value(section).expect("a section");
        let groups = |names: &[&str]| -> Vec<Option<String>> {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            let grants = Grant::all(&section, &names);
            grants.into_iter().map(|grant| grant.group).collect()
        };
        assert!(groups(&["chess"]).is_empty());
        let both = [Some("staff".to_owned()), Some("students".to_owned())];
        assert_eq!(groups(&["students", "chess", "staff"]), both);
    }

    #[test]
    fn the_id_of_an_oidc_user_is_unique_and_never_equals_a_key_id() {
        let keys = [
            key_of("https://a.example", "s"),
            key_of("https://a.example", "t"),
            key_of("https://a.examples", ""),
            key_of("https://b.example", "s"),
        ];
        assert!(keys.iter().all(|key| key.0 >= OF_A_PERSON));
        let apart: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(apart.len(), keys.len());
        assert_eq!(keys[0], key_of("https://a.example", "s"));
    }
}
