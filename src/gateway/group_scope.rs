//! The groups that a group's administrator administers.

use std::sync::Arc;

use crate::caller_group::CallerGroup;
use config::{GroupSection, GroupsSection, groups};

/// A group with the groups below it, which its administrators may administer.
#[derive(Clone, Debug)]
pub struct GroupScope {
    pub group: Arc<CallerGroup>,
    pub(crate) section: Arc<GroupsSection>,
}

impl GroupScope {
    /// Returns true if this is the group or a group below it.
    pub fn covers(&self, name: &str) -> bool {
        let mut lineage = self.lineage(name);
        lineage.any(|(above, _)| *above == *self.group.name)
    }

    /// Returns true if this is a group below it.
    pub(crate) fn is_above(&self, name: &str) -> bool {
        *name != *self.group.name && self.covers(name)
    }

    /// The group of this name and those above it.
    pub(crate) fn lineage<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a GroupSection)> {
        groups::lineage(&self.section, name)
    }

    /// The path of a group of the scope, given by its name or path. `None` for other groups.
    pub fn path_of(&self, wanted: &str) -> Option<String> {
        let name = wanted.rsplit('/').next().unwrap_or(wanted);
        let path = groups::path(&self.section, name);
        let is_it = wanted == name || wanted == path;
        (is_it && self.covers(name)).then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group_table::tests::table;

    #[test]
    fn a_scope_covers_the_group_and_those_below_it_by_name_and_path() {
        let table = table("top: {}\nlab: {parent: top}\nteam: {parent: lab}\nlabs: {}");
        let scope = GroupScope {
            group: Arc::clone(&table.groups["lab"]),
            section: Arc::clone(&table.section),
        };
        for (name, covered, above) in [
            ("lab", true, false),
            ("team", true, true),
            ("top", false, false),
            ("labs", false, false),
            ("", false, false),
            ("none", false, false),
        ] {
            assert_eq!(scope.covers(name), covered, "{name}");
            assert_eq!(scope.is_above(name), above, "{name}");
        }
        let path = |wanted| scope.path_of(wanted);
        assert_eq!(path("team").as_deref(), Some("top/lab/team"));
        assert_eq!(path("top/lab").as_deref(), Some("top/lab"));
        for other in [
            "top", "labs", "lab/team", "x/team", "/team", "team/", "", "/",
        ] {
            assert_eq!(path(other), None, "{other}");
        }
    }
}
