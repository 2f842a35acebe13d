//! Changes of groups by administrators: stored before they take effect (D1), and checked together with the groups of the
//! configuration.

use std::sync::Arc;

use crate::state::App;
use crate::to_its_end::to_its_end;
use api_types::error::{ErrorKind, Failure};
use api_types::paths::without_folders;
use config::{GroupSection, GroupsSection, groups};

/// Sets the group of this name, or removes it. Returns warnings about its members. Continues if the client leaves, because a stored
/// change must be in force.
///
/// # Errors
/// A group of the configuration, an unknown group, a tree that cannot be used, or a store that cannot be written. Nothing changes.
pub async fn change(
    app: &App,
    name: &str,
    group: Option<GroupSection>,
) -> Result<Vec<String>, Failure> {
    let (app, name) = (app.clone(), name.to_owned());
    let work = async move { change_to_its_end(&app, &name, group).await };
    to_its_end("the change of a group", work).await
}

async fn change_to_its_end(
    app: &App,
    name: &str,
    group: Option<GroupSection>,
) -> Result<Vec<String>, Failure> {
    let callers = app.keys.groups();
    let _turn = callers.changes().lock().await;
    let config = app.config();
    let before = callers.kept();
    // A stored group that the configuration has replaced can still be removed.
    let is_left_over = group.is_none() && before.contains_key(name);
    if config.groups.contains_key(name) && !is_left_over {
        return Err(Failure::conflict(
            "group_in_configuration",
            format!(
                "{name} is a group of the configuration file, which the API does not change; change groups.{name} there and reload"
            ),
        ));
    }
    let text = group.as_ref().map(serde_json::to_string).transpose();
    let text = text.map_err(|error| Failure::internal(format!("{name}: {error}")))?;
    let mut kept = before.clone();
    match group {
        Some(group) => drop(kept.insert(name.to_owned(), group)),
        None if kept.remove(name).is_none() => return Err(unknown(name)),
        None => {}
    }
    check(&config.groups, &before, &kept)?;
    let saved = app.handle.store().save_group(name, text.as_deref()).await;
    saved.map_err(|fault| {
        tracing::error!(%fault, "the groups could not be changed");
        let message = without_folders(&format!(
            "the change could not be stored, so nothing was changed: {fault}"
        ));
        Failure::new(ErrorKind::Unavailable, "not_saved", message)
    })?;
    callers.set_kept(kept);
    // A reload in between puts newer groups of the configuration in force.
    loop {
        let config = app.config();
        let warnings = callers.set(&config.groups, &app.keys.all(), &app.handle);
        if Arc::ptr_eq(&config, &app.config()) {
            return Ok(warnings);
        }
    }
}

/// Refuses a change that makes groups unusable. Groups that are left out already do not matter.
fn check(
    configured: &GroupsSection,
    before: &GroupsSection,
    kept: &GroupsSection,
) -> Result<(), Failure> {
    let (_, left_out) = groups::merged(configured, before);
    if !left_out.is_empty() {
        let (_, now) = groups::merged(configured, kept);
        let new = now.into_iter().find(|warning| !left_out.contains(warning));
        return new.map_or(Ok(()), |warning| Err(Failure::invalid(None, warning)));
    }
    let mut all = kept.clone();
    all.extend(configured.clone());
    match groups::problems(&all).first() {
        None => Ok(()),
        Some(problem) => Err(Failure::invalid(
            Some(problem.key.clone()),
            format!("{} {}", problem.key, problem.message),
        )),
    }
}

fn unknown(name: &str) -> Failure {
    let shown: String = name.chars().take(64).collect();
    Failure::not_found(format!(
        "there is no group {shown:?}; GET /admin/groups lists them"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str) -> GroupsSection {
        reading::yaml(text).expect("groups")
    }

    #[test]
    fn a_group_that_is_left_out_already_does_not_prevent_other_changes() {
        let configured = section("top: {keys: [k1]}");
        let before = section("old: {keys: [k1]}\nlab: {keys: [k2]}");
        let check = |kept: &str| check(&configured, &before, &section(kept));
        check("lab: {keys: [k2]}").unwrap();
        check("old: {keys: [k1]}\nlab: {keys: [k2, k3]}").unwrap();
        let error = check("old: {keys: [k1]}\nlab: {keys: [k2]}\nnew: {keys: [k2]}");
        let message = error.expect_err("twice").body.error.message;
        assert!(message.contains("the group new"), "{message}");
    }
}
