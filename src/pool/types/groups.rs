//! Groups of callers: a tree with weights, and the group of each key. The constructor checks them: the rest of the core finds
//! no cycle, no weight of zero, and each key in at most one group.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::types::ids::{GroupId, KeyId};

/// The maximum number of groups above one another.
pub const GROUP_DEPTH_MAX: usize = 8;
/// The maximum number of groups.
pub const GROUPS_MAX: usize = 4_096;
/// The largest weight.
pub const WEIGHT_MAX: u32 = 1_000;
/// The maximum number of members that are added one by one, such as people who sign on.
const ADDED_MAX: usize = 65_536;

/// A group as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub id: GroupId,
    pub name: String,
    pub parent: Option<GroupId>,
    /// The share of the group among its siblings (F1).
    pub weight: u32,
    /// The part of the pool's service, in thousandths, that requests of the class `priority` may take before all others (F5).
    pub reserved_permille: u32,
}

/// The tree of groups and their members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// Parents come before their children.
    groups: Vec<Group>,
    members: BTreeMap<KeyId, GroupId>,
    added: usize,
}

/// The reason a tree of groups is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupsError {
    TooMany {
        groups: usize,
    },
    Duplicate {
        name: String,
    },
    UnknownParent {
        name: String,
        parent: GroupId,
    },
    /// The names of the groups in the cycle.
    Cycle {
        names: Vec<String>,
    },
    TooDeep {
        name: String,
    },
    Weight {
        name: String,
        weight: u32,
    },
    /// The reserved shares of all groups exceed the pool.
    Reserved {
        permille: u64,
    },
    UnknownGroup {
        key: KeyId,
        group: GroupId,
    },
    TwoGroups {
        key: KeyId,
        names: [String; 2],
    },
}

impl Groups {
    pub fn new(
        groups: Vec<Group>,
        members: impl IntoIterator<Item = (KeyId, GroupId)>,
    ) -> Result<Groups, GroupsError> {
        if groups.len() > GROUPS_MAX {
            let groups = groups.len();
            return Err(GroupsError::TooMany { groups });
        }
        let mut names: BTreeMap<GroupId, String> = BTreeMap::new();
        for group in &groups {
            let name = group.name.clone();
            if !(1..=WEIGHT_MAX).contains(&group.weight) {
                let weight = group.weight;
                return Err(GroupsError::Weight { name, weight });
            }
            if names.insert(group.id, name.clone()).is_some() {
                return Err(GroupsError::Duplicate { name });
            }
        }
        let reserved = groups
            .iter()
            .map(|group| u64::from(group.reserved_permille));
        let permille: u64 = reserved.sum();
        if permille > 1_000 {
            return Err(GroupsError::Reserved { permille });
        }
        let groups = parents_first(groups)?;
        let mut known: BTreeMap<KeyId, GroupId> = BTreeMap::new();
        for (key, group) in members {
            if !names.contains_key(&group) {
                return Err(GroupsError::UnknownGroup { key, group });
            }
            if let Some(other) = known.insert(key, group).filter(|other| *other != group) {
                let names = [other, group].map(|id| names[&id].clone());
                return Err(GroupsError::TwoGroups { key, names });
            }
        }
        Ok(Groups {
            groups,
            members: known,
            added: 0,
        })
    }

    /// Parents come before their children.
    pub fn all(&self) -> &[Group] {
        &self.groups
    }

    /// The path of each group from the top, as in `physics/lab`.
    pub fn paths(&self) -> BTreeMap<GroupId, String> {
        let mut paths: BTreeMap<GroupId, String> = BTreeMap::new();
        for group in &self.groups {
            let above = group.parent.and_then(|parent| paths.get(&parent));
            let path = match above {
                Some(above) => format!("{above}/{}", group.name),
                None => group.name.clone(),
            };
            paths.insert(group.id, path);
        }
        paths
    }

    /// The path of the key's group from the top, as in `physics/lab`; `None` for a key without a group.
    pub fn path(&self, key: KeyId) -> Option<String> {
        let mut next = self.group(key);
        let mut names: Vec<&str> = Vec::new();
        for group in self.groups.iter().rev() {
            if Some(group.id) == next {
                names.push(&group.name);
                next = group.parent;
            }
        }
        names.reverse();
        (!names.is_empty()).then(|| names.join("/"))
    }

    /// The group of the key; `None` for a key without a group.
    pub fn group(&self, key: KeyId) -> Option<GroupId> {
        self.members.get(&key).copied()
    }

    /// Sets the group of a key. Returns false if nothing changes: the group is unknown, or too many keys were added one by one.
    pub(crate) fn set_member(&mut self, key: KeyId, group: Option<GroupId>) -> bool {
        let Some(group) = group else {
            return self.members.remove(&key).is_some();
        };
        let is_known = self.groups.iter().any(|known| known.id == group);
        let is_new = !self.members.contains_key(&key);
        if !is_known || (is_new && self.added >= ADDED_MAX) {
            return false;
        }
        self.added += usize::from(is_new);
        self.members.insert(key, group) != Some(group)
    }
}

/// Orders groups by depth, and finds parents that do not exist and cycles.
fn parents_first(groups: Vec<Group>) -> Result<Vec<Group>, GroupsError> {
    let ids: BTreeSet<GroupId> = groups.iter().map(|group| group.id).collect();
    for Group { name, parent, .. } in &groups {
        if let Some(parent) = parent.filter(|parent| !ids.contains(parent)) {
            let name = name.clone();
            return Err(GroupsError::UnknownParent { name, parent });
        }
    }
    let mut left = groups;
    let mut placed: BTreeSet<GroupId> = BTreeSet::new();
    let mut ordered = Vec::with_capacity(left.len());
    for _ in 0..GROUP_DEPTH_MAX {
        let is_next = |group: &Group| group.parent.is_none_or(|parent| placed.contains(&parent));
        let (next, rest): (Vec<Group>, Vec<Group>) = left.into_iter().partition(is_next);
        placed.extend(next.iter().map(|group| group.id));
        ordered.extend(next);
        left = rest;
    }
    let Some(first) = left.first() else {
        return Ok(ordered);
    };
    // Following the parents of a group that could not be placed leads into a cycle, or to the top of a chain that is too long.
    let parents: BTreeMap<GroupId, &Group> = left.iter().map(|group| (group.id, group)).collect();
    let mut path: Vec<&Group> = vec![first];
    while let Some(parent) = path.last().and_then(|group| parents.get(&group.parent?)) {
        if let Some(start) = path.iter().position(|group| group.id == parent.id) {
            let names = path[start..].iter().map(|group| group.name.clone());
            return Err(GroupsError::Cycle {
                names: names.collect(),
            });
        }
        path.push(parent);
    }
    let name = first.name.clone();
    Err(GroupsError::TooDeep { name })
}

impl fmt::Display for GroupsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupsError::TooMany { groups } => {
                write!(f, "{groups} groups; the limit is {GROUPS_MAX}")
            }
            GroupsError::Duplicate { name } => write!(f, "group {name} is defined twice"),
            GroupsError::UnknownParent { name, parent } => {
                write!(f, "the parent {parent} of group {name} does not exist")
            }
            GroupsError::Cycle { names } => {
                write!(f, "groups contain each other: {}", names.join(" in "))
            }
            GroupsError::TooDeep { name } => {
                write!(
                    f,
                    "group {name} is below more than {} others",
                    GROUP_DEPTH_MAX - 1
                )
            }
            GroupsError::Weight { name, weight } => {
                write!(
                    f,
                    "the weight of group {name} is {weight}; use 1 to {WEIGHT_MAX}"
                )
            }
            GroupsError::Reserved { permille } => {
                write!(
                    f,
                    "the reserved shares add up to {permille}‰ of the pool; the limit is 1000‰"
                )
            }
            GroupsError::UnknownGroup { key, group } => {
                write!(f, "key {key} belongs to {group}, which does not exist")
            }
            GroupsError::TwoGroups {
                key,
                names: [one, other],
            } => {
                write!(f, "key {key} belongs to two groups, {one} and {other}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn group(id: u32, parent: Option<u32>, weight: u32) -> Group {
        Group {
            id: GroupId(id),
            name: format!("group-{id}"),
            parent: parent.map(GroupId),
            weight,
            reserved_permille: 0,
        }
    }

    fn error(groups: Vec<Group>, members: &[(u64, u32)]) -> String {
        let members = members
            .iter()
            .map(|&(key, group)| (KeyId(key), GroupId(group)));
        let result = Groups::new(groups, members);
        result.map_or_else(|error| error.to_string(), |_| "accepted".to_string())
    }

    #[test]
    fn the_path_of_a_group_begins_at_the_top() {
        let groups = [
            group(3, Some(1), 1),
            group(1, Some(2), 1),
            group(2, None, 1),
        ];
        let members = [1, 2, 3].map(|id| (KeyId(id.into()), GroupId(id)));
        let groups = Groups::new(groups.into(), members).expect("a tree");
        let paths = groups.paths();
        let name = |id: u32| group(id, None, 1).name;
        assert_eq!(paths[&GroupId(2)], name(2));
        let deepest = [2, 1, 3].map(name).join("/");
        assert_eq!(paths[&GroupId(3)], deepest);
        for (key, group) in members {
            assert_eq!(groups.path(key).as_ref(), paths.get(&group));
        }
        assert_eq!(groups.path(KeyId(4)), None);
    }

    #[test]
    fn groups_that_contain_each_other_are_refused_by_name() {
        let groups = vec![
            group(1, Some(3), 1),
            group(2, Some(1), 1),
            group(3, Some(2), 1),
        ];
        assert_eq!(
            error(groups, &[]),
            "groups contain each other: group-1 in group-3 in group-2"
        );
        assert_eq!(
            error(vec![group(1, Some(1), 1)], &[]),
            "groups contain each other: group-1"
        );
        let below = vec![group(1, Some(2), 1), group(2, Some(2), 1)];
        assert_eq!(error(below, &[]), "groups contain each other: group-2");
    }

    #[test]
    fn weights_of_zero_unknown_parents_and_deep_trees_are_refused() {
        assert_eq!(
            error(vec![group(1, None, 0)], &[]),
            "the weight of group group-1 is 0; use 1 to 1000"
        );
        assert!(error(vec![group(1, None, 1_001)], &[]).contains("is 1001"));
        assert!(error(vec![group(1, Some(9), 1)], &[]).contains("g9"));
        let chain = |length: u32| (1..=length).map(|id| group(id, (id > 1).then(|| id - 1), 1));
        assert_eq!(error(chain(8).collect(), &[]), "accepted");
        assert!(error(chain(9).collect(), &[]).contains("group-9"));
        let twice = vec![group(1, None, 1), group(1, None, 2)];
        assert_eq!(error(twice, &[]), "group group-1 is defined twice");
    }

    #[test]
    fn a_key_in_two_groups_is_refused_and_may_be_named_twice_for_one() {
        let groups = || vec![group(1, None, 1), group(2, None, 1)];
        assert_eq!(
            error(groups(), &[(7, 1), (7, 2)]),
            "key k7 belongs to two groups, group-1 and group-2"
        );
        assert_eq!(error(groups(), &[(7, 1), (7, 1)]), "accepted");
        assert!(error(groups(), &[(7, 3)]).contains("g3"));
    }

    #[test]
    fn reserved_shares_of_more_than_the_pool_are_refused() {
        let reserved = |permille| Group {
            reserved_permille: permille,
            ..group(permille, None, 1)
        };
        assert_eq!(error(vec![reserved(600), reserved(400)], &[]), "accepted");
        assert!(error(vec![reserved(600), reserved(401)], &[]).contains("1001"));
        assert!(
            error(vec![reserved(u32::MAX), reserved(u32::MAX - 1)], &[]).contains("8589934589")
        );
    }
}
