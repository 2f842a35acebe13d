//! The groups of callers: which group a key or a person belongs to, and what it allows. The pool shares seats between groups
//! (F1); access, classes and limits are checked here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use crate::caller_group::CallerGroup;
use crate::group_scope::GroupScope;
use crate::group_spending::Spending;
use crate::group_table::{MemberKey, Table};
use access::oidc::Identity;
use config::{GroupsSection, groups};
use controller::Handle;
use pool::{GroupId, Groups, KeyId};
use store::KeyRecord;

/// The maximum number of callers whose group is reported to the pool one by one. The core has the same bound.
const CALLERS_MAX: usize = 65_536;

/// The groups of all callers.
#[derive(Debug, Default)]
pub struct CallerGroups {
    table: ArcSwap<Table>,
    state: Mutex<State>,
    spending: Arc<Spending>,
    /// The groups that administrators have set, which are stored.
    kept: ArcSwap<GroupsSection>,
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
    fn renew(&mut self, table: &Table, keys: &[MemberKey]) {
        let with_claims: BTreeSet<&str> = table.claims.values().map(|group| &*group.name).collect();
        self.known.retain(|_, name| with_claims.contains(&**name));
        for key in keys {
            match table.of_key(*key) {
                Some(group) => drop(self.known.insert(key.id, Arc::clone(&group.name))),
                None => drop(self.known.remove(&key.id)),
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
        self.table.load().section.is_empty()
    }

    /// All groups in force: of the configuration, and of administrators.
    pub fn section(&self) -> Arc<GroupsSection> {
        Arc::clone(&self.table.load().section)
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
        let keys: Vec<MemberKey> = keys.iter().map(MemberKey::from).collect();
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
        warnings
    }

    /// The group of a key. The pool learns it before the key's first request.
    pub fn of_key(&self, key: &KeyRecord, handle: &Handle) -> Option<Arc<CallerGroup>> {
        let table = self.table.load();
        if table.groups.is_empty() {
            return None;
        }
        let group = table.of_key(key.into()).cloned();
        self.tell(key.id, group.as_ref(), handle);
        group
    }

    /// The group of a key, without telling the pool.
    pub(crate) fn group_of(&self, key: &KeyRecord) -> Option<Arc<CallerGroup>> {
        self.table.load().of_key(key.into()).cloned()
    }

    /// The name of the group of a key.
    pub fn name_of(&self, key: &KeyRecord) -> Option<String> {
        Some(self.group_of(key)?.name.to_string())
    }

    /// Returns the group of this name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<CallerGroup>> {
        self.table.load().groups.get(name).cloned()
    }

    /// The groups that the administrator with this key administers; `None` for a key without a group. Does not check the role.
    pub(crate) fn scope_of_key(&self, key: &KeyRecord) -> Option<GroupScope> {
        let table = self.table.load();
        Some(GroupScope {
            group: table.of_key(key.into()).cloned()?,
            section: Arc::clone(&table.section),
        })
    }

    /// Like [`CallerGroups::scope_of_key`] for a person.
    pub(crate) fn scope_of_person(&self, person: &Identity) -> Option<GroupScope> {
        let table = self.table.load();
        Some(GroupScope {
            group: table.of_claims(&person.claims).cloned()?,
            section: Arc::clone(&table.section),
        })
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
impl CallerGroups {
    /// These groups, without a pool.
    pub(crate) fn from_yaml(text: &str) -> CallerGroups {
        let groups = CallerGroups::default();
        let table = crate::group_table::tests::table(text);
        groups.table.store(Arc::new(table));
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group_table::tests::{key, table};

    #[test]
    fn people_leave_a_group_that_has_no_claims_any_more() {
        let mut state = State::default();
        let person = KeyId(1 << 40);
        let known = |state: &State| -> Vec<(KeyId, String)> {
            let known = state.known.iter();
            known.map(|(key, name)| (*key, name.to_string())).collect()
        };
        let keys = [key(1, "one")];
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
