//! The groups of callers: which group a key or a person belongs to, and what it allows. The pool shares seats between groups
//! (F1); access, classes and limits are checked here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use crate::caller_group::CallerGroup;
use crate::group_spending::Spending;
use access::oidc::Identity;
use config::{GroupsSection, groups};
use controller::Handle;
use pool::{GroupId, Groups, KeyId};
use store::KeyRecord;

/// The maximum number of callers whose group is reported to the pool one by one. The core has the same bound.
const CALLERS_MAX: usize = 65_536;
/// The number of keys that a warning names. Further ones are only counted.
const NAMED_MAX: usize = 5;

/// The groups of the configuration in force.
#[derive(Debug, Default)]
struct Table {
    groups: BTreeMap<String, Arc<CallerGroup>>,
    /// By the id or the name of the key.
    keys: BTreeMap<String, Arc<CallerGroup>>,
    claims: BTreeMap<String, Arc<CallerGroup>>,
}

impl Table {
    fn new(
        section: &GroupsSection,
        spending: &Spending,
        mut id: impl FnMut(&str) -> GroupId,
    ) -> Table {
        let mut table = Table::default();
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

    fn of_key(&self, id: KeyId, name: &str) -> Option<&Arc<CallerGroup>> {
        if self.keys.is_empty() {
            return None;
        }
        let by_id = self.keys.get(&id.to_string());
        by_id.or_else(|| self.by_name(name))
    }

    fn by_name(&self, name: &str) -> Option<&Arc<CallerGroup>> {
        self.keys.get(name).filter(|_| !is_id(name))
    }

    /// Members that match no API key, and API keys that two groups list. Keys may be created after their group, so these
    /// are not errors.
    fn warnings(&self, section: &GroupsSection, keys: &[(KeyId, &str)]) -> Vec<String> {
        if self.keys.is_empty() {
            return Vec::new();
        }
        let ids: BTreeSet<String> = keys.iter().map(|(id, _)| id.to_string()).collect();
        let names: BTreeSet<&str> = keys.iter().map(|(_, name)| *name).collect();
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
        let twice = keys.iter().filter_map(|(id, name)| {
            let (by_id, by_name) = (self.keys.get(&id.to_string())?, self.by_name(name)?);
            let (first, other) = (&by_id.name, &by_name.name);
            (first != other)
                .then(|| format!("{id} by its id to {first} and by its name to {other}"))
        });
        let twice: Vec<String> = twice.collect();
        if !twice.is_empty() {
            warnings.push(format!(
                "groups: API keys belong to two groups, and the id decides: {}; remove one of each",
                named(&twice)
            ));
        }
        warnings
    }

    fn of_claims(&self, claims: &[String]) -> Option<&Arc<CallerGroup>> {
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

/// The groups of all callers.
#[derive(Debug, Default)]
pub struct CallerGroups {
    table: ArcSwap<Table>,
    state: Mutex<State>,
    spending: Arc<Spending>,
    /// The groups that administrators have set, which are stored.
    kept: ArcSwap<GroupsSection>,
    /// All groups in force.
    section: ArcSwap<GroupsSection>,
    /// Serializes changes by administrators.
    changes: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Numbers stay with their names over reloads, so groups keep their service.
    numbers: BTreeMap<String, GroupId>,
    /// The groups of callers that the pool knows, by name.
    known: BTreeMap<KeyId, Arc<str>>,
}

impl State {
    fn number(&mut self, name: &str) -> GroupId {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let number = self.numbers.entry(name.to_owned());
        *number.or_insert(GroupId(next))
    }

    /// Takes over the groups of all API keys. People keep their group until their next request, unless it has no claims any more.
    fn renew(&mut self, table: &Table, keys: &[(KeyId, &str)]) {
        let with_claims: BTreeSet<&str> = table.claims.values().map(|group| &*group.name).collect();
        self.known.retain(|_, name| with_claims.contains(&**name));
        for (id, name) in keys {
            match table.of_key(*id, name) {
                Some(group) => drop(self.known.insert(*id, Arc::clone(&group.name))),
                None => drop(self.known.remove(id)),
            }
        }
    }
}

impl CallerGroups {
    /// With the stored groups of administrators. A group that this version cannot read is left out.
    pub(crate) fn with_kept(stored: &BTreeMap<String, String>) -> CallerGroups {
        let mut kept = GroupsSection::new();
        for (name, text) in stored {
            match reading::json(text) {
                Ok(group) => drop(kept.insert(name.clone(), group)),
                Err(error) => {
                    tracing::error!(
                        "the stored group {name} cannot be read and is left out: {error}"
                    );
                }
            }
        }
        let groups = CallerGroups::default();
        groups.set_kept(kept);
        groups
    }

    pub(crate) fn kept(&self) -> GroupsSection {
        GroupsSection::clone(&self.kept.load())
    }

    pub(crate) fn set_kept(&self, kept: GroupsSection) {
        self.kept.store(Arc::new(kept));
    }

    pub(crate) fn changes(&self) -> &tokio::sync::Mutex<()> {
        &self.changes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.section.load().is_empty()
    }

    /// All groups in force: of the configuration, and of administrators.
    pub fn section(&self) -> Arc<GroupsSection> {
        self.section.load_full()
    }

    /// Puts the groups of the configuration and of administrators in force, and tells the pool. Returns warnings about them.
    pub fn set(
        &self,
        configured: &GroupsSection,
        keys: &[KeyRecord],
        handle: &Handle,
    ) -> Vec<String> {
        let (section, mut warnings) = groups::merged(configured, &self.kept.load());
        let section = &section;
        let keys = keys.iter().map(|key| (key.id, key.name.as_str()));
        let keys: Vec<(KeyId, &str)> = keys.collect();
        let mut state = self.state();
        let table = Table::new(section, &self.spending, |name| state.number(name));
        state.renew(&table, &keys);
        let members = state.known.iter();
        let members = members.filter_map(|(key, name)| Some((*key, table.groups.get(&**name)?.id)));
        let members: Vec<(KeyId, GroupId)> = members.collect();
        let groups = groups::core_groups(section, |name| state.number(name));
        match groups.and_then(|groups| Groups::new(groups, members)) {
            // A controller that is gone serves no requests.
            Ok(groups) => drop(handle.set_groups(groups)),
            // The gateway and the pool keep the same tree (F6).
            Err(error) => {
                let warning = format!("the groups stay as they are: {error}");
                tracing::error!("{warning}");
                return vec![warning];
            }
        }
        warnings.extend(table.warnings(section, &keys));
        self.table.store(Arc::new(table));
        self.section.store(Arc::new(section.clone()));
        warnings
    }

    /// The group of a key. The pool learns it before the key's first request.
    pub(crate) fn of_key(&self, key: &KeyRecord, handle: &Handle) -> Option<Arc<CallerGroup>> {
        let table = self.table.load();
        if table.keys.is_empty() {
            return None;
        }
        let group = table.of_key(key.id, &key.name).cloned();
        self.tell(key.id, group.as_ref(), handle);
        group
    }

    /// The group of a person. The pool learns it before the person's first request.
    pub(crate) fn of_person(&self, person: &Identity, handle: &Handle) -> Option<Arc<CallerGroup>> {
        let table = self.table.load();
        if table.claims.is_empty() {
            return None;
        }
        let group = table.of_claims(&person.claims).cloned();
        self.tell(person.key, group.as_ref(), handle);
        group
    }

    /// The use of the groups in this month.
    pub(crate) fn spending(&self) -> &Arc<Spending> {
        &self.spending
    }

    /// The callers that belong to a group, with its name: all keys of groups, and people since their first request.
    pub(crate) fn members(&self) -> BTreeMap<KeyId, Arc<str>> {
        self.state().known.clone()
    }

    /// The paths of the groups of these callers.
    pub fn paths_of(&self, callers: impl Iterator<Item = KeyId>) -> BTreeMap<KeyId, Arc<str>> {
        let (table, state) = (self.table.load(), self.state());
        let path = |key: KeyId| {
            let group = table.groups.get(&**state.known.get(&key)?)?;
            Some((key, Arc::clone(&group.path)))
        };
        callers.filter_map(path).collect()
    }

    fn tell(&self, caller: KeyId, group: Option<&Arc<CallerGroup>>, handle: &Handle) {
        let mut state = self.state();
        let known = state.known.get(&caller);
        if known == group.map(|group| &group.name) {
            return;
        }
        match group {
            Some(_) if known.is_none() && state.known.len() >= CALLERS_MAX => return,
            Some(group) => drop(state.known.insert(caller, Arc::clone(&group.name))),
            None => drop(state.known.remove(&caller)),
        }
        // A controller that is gone serves no requests.
        let _ = handle.set_member(caller, group.map(|group| group.id));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        let section: GroupsSection = reading::yaml(text).expect("groups");
        let mut state = State::default();
        Table::new(&section, &Spending::default(), |name| state.number(name))
    }

    #[test]
    fn a_key_is_found_by_its_id_and_its_name_and_a_person_by_the_first_group() {
        let table = table("b: {keys: [k7, course], claims: [two]}\na: {claims: [one]}");
        let of_key = |id, name| table.of_key(KeyId(id), name).map(|group| &*group.name);
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
            let group = table.of_key(KeyId(1), name).map(|group| &*group.name);
            assert_eq!(group, Some("a"), "{name}");
        }
    }

    #[test]
    fn members_without_a_key_and_keys_in_two_groups_are_named() {
        let text = "a: {keys: [k1, tpyo, k9, k01]}\nb: {keys: [course]}\nc: {claims: [x]}";
        let section: GroupsSection = reading::yaml(text).expect("groups");
        let table = table(text);
        let warnings = table.warnings(&section, &[(KeyId(1), "course"), (KeyId(2), "tpyo2")]);
        assert_eq!(
            warnings,
            [
                "groups.a.keys: no API key has the id or name `tpyo`, `k9`, `k01`; correct it, or create the key",
                "groups: API keys belong to two groups, and the id decides: k1 by its id to a and by its name to b; remove one of each",
            ]
        );
        let keys = [(KeyId(1), "one"), (KeyId(9), "course"), (KeyId(3), "tpyo")];
        let warnings = table.warnings(&section, &keys);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("name `k01`;"), "{warnings:?}");
        let many: Vec<String> = (0..7).map(|nth| format!("x{nth}")).collect();
        assert_eq!(named(&many), "x0, x1, x2, x3, x4 and 2 more");
    }

    #[test]
    fn people_leave_a_group_that_has_no_claims_any_more() {
        let mut state = State::default();
        let person = KeyId(1 << 40);
        let known = |state: &State| -> Vec<(KeyId, String)> {
            let known = state.known.iter();
            known.map(|(key, name)| (*key, name.to_string())).collect()
        };
        let keys = [(KeyId(1), "one")];
        state.known.insert(person, "lab".into());
        state.renew(&table("lab: {keys: [one], claims: [x]}"), &keys);
        let both = [(KeyId(1), "lab".to_owned()), (person, "lab".to_owned())];
        assert_eq!(known(&state), both);
        state.renew(&table("lab: {keys: [one]}\nb: {claims: [x]}"), &keys);
        assert_eq!(known(&state), both[..1]);
        state.renew(&table("lab: {}"), &keys);
        assert_eq!(known(&state), []);
    }
}
