//! Reads llama-swap's groups of models that run together. The pool keeps as many models loaded as fit, and chooses victims by
//! priority and cost; only persistent groups have a counterpart.

use std::collections::BTreeSet;

use crate::fields::Fields;
use crate::notes::{Notes, Problem};

/// Notes the differences, and returns the members of persistent groups.
pub fn read(root: &Fields<'_>, notes: &mut Notes) -> Result<BTreeSet<String>, Problem> {
    let mut persistent = BTreeSet::new();
    let routing = Fields::from_path("routing", root.get("routing"))?;
    let router = Fields::from_path("routing.router", routing.get("router"))?;
    let settings = Fields::from_path("routing.router.settings", router.get("settings"))?;
    let mut any = false;
    for (path, value) in [
        ("groups", root.get("groups")),
        ("routing.router.settings.groups", settings.get("groups")),
    ] {
        let groups = Fields::from_path(path, value)?;
        for name in groups.keys() {
            any = true;
            let key = groups.path(name);
            let group = Fields::from_path(&key, groups.get(name))?;
            one(&group, &mut persistent, notes)?;
        }
    }
    for (path, value) in [
        ("matrix", root.get("matrix")),
        ("routing.router.settings.matrix", settings.get("matrix")),
    ] {
        if value.is_some() {
            any = true;
            notes.warn(
                path,
                "has no counterpart: the pool keeps as many models loaded as fit in memory, and evicts by priority, then by the cost of loading again; `admin-client plan MODEL` shows what a load would evict",
            );
        }
    }
    if routing.get("scheduler").is_some() {
        notes.warn(
            "routing.scheduler",
            "has no counterpart: requests wait by the model's priority, then fair between keys. pool_config.priority in a model file also decides who is evicted, so it was not set",
        );
    }
    if !any {
        notes.warn(
            "groups",
            "there are none, so llama-swap runs one model at a time; the pool keeps as many loaded as fit in memory",
        );
    }
    Ok(persistent)
}

fn one(
    group: &Fields<'_>,
    persistent: &mut BTreeSet<String>,
    notes: &mut Notes,
) -> Result<(), Problem> {
    let is_set = |key: &str, default: bool| match group.get(key) {
        None => Ok(default),
        Some(_) => group.flag(key),
    };
    if is_set("swap", true)? {
        notes.warn(
            &group.path("swap"),
            "true (one member at a time) has no counterpart: members stay loaded together as long as they fit in memory",
        );
    }
    if is_set("exclusive", true)? {
        notes.warn(
            &group.path("exclusive"),
            "true (other groups leave) has no counterpart: other models leave only if their memory is needed",
        );
    }
    if group.flag("persistent")? {
        persistent.extend(group.texts("members")?);
        notes.warn(
            &group.path("persistent"),
            "its members got priority 2: no request evicts them, and they are loaded at the start",
        );
    }
    for key in group.keys() {
        if !["swap", "exclusive", "persistent", "members"].contains(&key) {
            notes.warn(
                &group.path(key),
                "is not known to this version, and was left out",
            );
        }
    }
    Ok(())
}
