//! The groups in force, and the group of each key and person.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::caller_group::CallerGroup;
use crate::group_spending::Spending;
use config::GroupsSection;
use pool::{GroupId, KeyId};
use store::KeyRecord;

/// The number of keys that a warning names. Further ones are only counted.
const NAMED_MAX: usize = 5;

/// A key as the groups see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberKey<'a> {
    pub(crate) id: KeyId,
    pub(crate) name: &'a str,
    /// The group that is set for the key itself.
    pub(crate) group: Option<&'a str>,
}

impl<'a> From<&'a KeyRecord> for MemberKey<'a> {
    fn from(key: &'a KeyRecord) -> MemberKey<'a> {
        MemberKey {
            id: key.id,
            name: &key.name,
            group: key.allowed.group.as_deref().filter(|_| !key.revoked),
        }
    }
}

/// The groups of the configuration in force.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) section: Arc<GroupsSection>,
    pub(crate) groups: BTreeMap<String, Arc<CallerGroup>>,
    /// By the id or the name of the key.
    pub(crate) keys: BTreeMap<String, Arc<CallerGroup>>,
    pub(crate) claims: BTreeMap<String, Arc<CallerGroup>>,
}

impl Table {
    pub(crate) fn new(
        section: &GroupsSection,
        spending: &Spending,
        mut id: impl FnMut(&str) -> GroupId,
    ) -> Table {
        let mut table = Table {
            section: Arc::new(section.clone()),
            ..Table::default()
        };
        for (name, group) in section {
            let caller = CallerGroup::new(section, name, spending, id(name));
            let caller = Arc::new(caller);
            let with = |member: &String| (member.clone(), Arc::clone(&caller));
            table.keys.extend(group.keys.iter().map(with));
            table.claims.extend(group.claims.iter().map(with));
            table.groups.insert(name.clone(), caller);
        }
        table
    }

    /// The group of the key: the group set for it, then the group that lists its id, then the group that lists its name.
    /// Administrators of groups choose the names of keys, so a name decides last.
    pub(crate) fn of_key(&self, key: MemberKey) -> Option<&Arc<CallerGroup>> {
        let own = self.own(key);
        own.or_else(|| self.by_id(key.id))
            .or_else(|| self.by_name(key.name))
    }

    fn own(&self, key: MemberKey) -> Option<&Arc<CallerGroup>> {
        self.groups.get(key.group?)
    }

    fn by_id(&self, id: KeyId) -> Option<&Arc<CallerGroup>> {
        if self.keys.is_empty() {
            return None;
        }
        self.keys.get(&id.to_string())
    }

    fn by_name(&self, name: &str) -> Option<&Arc<CallerGroup>> {
        self.keys.get(name).filter(|_| !is_id(name))
    }

    /// Members that match no API key, API keys with two groups, and API keys of groups that do not exist. Keys may be created after
    /// their group, so these are not errors.
    pub(crate) fn warnings(&self, section: &GroupsSection, keys: &[MemberKey]) -> Vec<String> {
        let ids: BTreeSet<String> = keys.iter().map(|key| key.id.to_string()).collect();
        let names: BTreeSet<&str> = keys.iter().map(|key| key.name).collect();
        let is_known = |member: &String| {
            if is_id(member) {
                ids.contains(member)
            } else {
                names.contains(member.as_str())
            }
        };
        let mut warnings = Vec::new();
        for (name, group) in section {
            let unknown = group.keys.iter().filter(|member| !is_known(member));
            let unknown: Vec<String> = unknown.map(|member| format!("`{member}`")).collect();
            if !unknown.is_empty() {
                warnings.push(format!(
                    "groups.{name}.keys: no API key has the id or name {}; correct it, or create the key",
                    named(&unknown)
                ));
            }
        }
        let twice = keys.iter().filter_map(|&key| {
            let places = [
                ("as set for it", self.own(key)),
                ("by its id", self.by_id(key.id)),
                ("by its name", self.by_name(key.name)),
            ];
            let mut places = places
                .into_iter()
                .filter_map(|(how, group)| Some((how, &group?.name)));
            let (how, first) = places.next()?;
            let (other_how, other) = places.find(|(_, other)| *other != first)?;
            let id = key.id;
            Some(format!("{id} {how} to {first} and {other_how} to {other}"))
        });
        let twice: Vec<String> = twice.collect();
        if !twice.is_empty() {
            warnings.push(format!(
                "groups: API keys belong to two groups, and the first one counts: {}; remove one of each",
                named(&twice)
            ));
        }
        let lost = keys.iter().filter_map(|key| {
            let group = key
                .group
                .filter(|group| !self.groups.contains_key(*group))?;
            Some(format!("{} ({group})", key.id))
        });
        let lost: Vec<String> = lost.collect();
        if !lost.is_empty() {
            warnings.push(format!(
                "groups: API keys are set for groups that do not exist, and count as keys without a group: {}; change them with `admin-client keys set ID --group NAME`",
                named(&lost)
            ));
        }
        warnings
    }

    pub(crate) fn of_claims(&self, claims: &[String]) -> Option<&Arc<CallerGroup>> {
        let groups = claims.iter().filter_map(|claim| self.claims.get(claim));
        groups.min_by(|one, other| one.name.cmp(&other.name))
    }
}

/// Returns true for a text such as `k3`, which is never the name of another key.
fn is_id(name: &str) -> bool {
    let number = name.strip_prefix('k').map(str::as_bytes);
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

/// The first of these, and the number of the others.
fn named(all: &[String]) -> String {
    let first = all[..all.len().min(NAMED_MAX)].join(", ");
    match all.len().saturating_sub(NAMED_MAX) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn key(id: u64, name: &str) -> MemberKey<'_> {
        MemberKey {
            id: KeyId(id),
            name,
            group: None,
        }
    }

    pub(crate) fn table(text: &str) -> Table {
        let section: GroupsSection = reading::yaml(text).expect("groups");
        let mut ids = 0..;
        let spending = Spending::default();
        Table::new(&section, &spending, |_| {
            GroupId(ids.next().expect("endless"))
        })
    }

    #[test]
    fn a_key_is_found_by_its_id_and_its_name_and_a_person_by_the_first_group() {
        let table = table("b: {keys: [k7, course], claims: [two]}\na: {claims: [one]}");
        let of_key = |id, name| table.of_key(key(id, name)).map(|group| &*group.name);
        assert_eq!(of_key(7, "x"), Some("b"));
        assert_eq!(of_key(8, "course"), Some("b"));
        assert_eq!(of_key(8, "other"), None);
        assert_eq!(of_key(8, "k7"), None, "an id is not a name");
        let of_claims = |claims: &[&str]| {
            let claims: Vec<String> = claims.iter().map(|&claim| claim.to_owned()).collect();
            table.of_claims(&claims).map(|group| group.name.to_string())
        };
        assert_eq!(of_claims(&["two", "one"]).as_deref(), Some("a"));
        assert_eq!(of_claims(&["three"]), None);
    }

    #[test]
    fn a_key_named_like_the_prefix_of_an_id_is_found_by_its_name() {
        let table = table("a: {keys: [k, k7x]}");
        for name in ["k", "k7x"] {
            let group = table.of_key(key(1, name)).map(|group| &*group.name);
            assert_eq!(group, Some("a"), "{name}");
        }
    }

    #[test]
    fn members_without_a_key_and_keys_in_two_groups_are_named() {
        let text = "a: {keys: [k1, tpyo, k9, k01]}\nb: {keys: [course]}\nc: {claims: [x]}";
        let section: GroupsSection = reading::yaml(text).expect("groups");
        let table = table(text);
        let warnings = table.warnings(&section, &[key(1, "course"), key(2, "tpyo2")]);
        assert_eq!(
            warnings,
            [
                "groups.a.keys: no API key has the id or name `tpyo`, `k9`, `k01`; correct it, or create the key",
                "groups: API keys belong to two groups, and the first one counts: k1 by its id to a and by its name to b; remove one of each",
            ]
        );
        let keys = [key(1, "one"), key(9, "course"), key(3, "tpyo")];
        let warnings = table.warnings(&section, &keys);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("name `k01`;"), "{warnings:?}");
        let many: Vec<String> = (0..7).map(|nth| format!("x{nth}")).collect();
        assert_eq!(named(&many), "x0, x1, x2, x3, x4 and 2 more");
    }

    #[test]
    fn the_group_set_for_a_key_counts_before_lists_and_a_missing_one_is_named() {
        let text = "lab: {}\nother: {keys: [k1, course]}\nthird: {keys: [lost]}";
        let section: GroupsSection = reading::yaml(text).expect("groups");
        let table = table(text);
        let set = |id, name, group| MemberKey {
            group: Some(group),
            ..key(id, name)
        };
        let of_key = |key| table.of_key(key).map(|group| &*group.name);
        assert_eq!(of_key(set(1, "course", "lab")), Some("lab"));
        assert_eq!(of_key(set(2, "course", "lab")), Some("lab"));
        assert_eq!(of_key(set(3, "lost", "gone")), Some("third"));
        assert_eq!(of_key(set(4, "x", "gone")), None);
        let keys = [set(1, "course", "lab"), set(3, "lost", "gone")];
        assert_eq!(
            table.warnings(&section, &keys),
            [
                "groups: API keys belong to two groups, and the first one counts: k1 as set for it to lab and by its id to other; remove one of each",
                "groups: API keys are set for groups that do not exist, and count as keys without a group: k3 (gone); change them with `admin-client keys set ID --group NAME`",
            ]
        );
    }
}
