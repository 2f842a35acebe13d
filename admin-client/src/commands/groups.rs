//! `groups list|set|remove`.

use clap::ValueEnum;
use client::{Method, Patience};
use serde_json::{Value, json};

use crate::cli::{GroupArgs, GroupsArgs, GroupsCommand};
use crate::decisions::{ChangedGroup, GroupList};
use crate::error::CommandError;
use crate::render::groups;
use crate::render::quantity::Clock;
use crate::session::{Session, present};

pub async fn run(session: &Session, args: GroupsArgs) -> Result<(), CommandError> {
    match args.command {
        None | Some(GroupsCommand::List) => {
            let show = |list: &GroupList, style| groups::groups(list, Clock::read(), style);
            session.get("admin/groups", &[], show).await
        }
        Some(GroupsCommand::Set(args)) => {
            let body = body(&args);
            change(session, Method::PUT, &args.group, Some(&body), "set").await
        }
        Some(GroupsCommand::Remove { group }) => {
            change(session, Method::DELETE, &group, None, "removed").await
        }
    }
}

async fn change(
    session: &Session,
    method: Method,
    group: &str,
    body: Option<&Value>,
    done: &str,
) -> Result<(), CommandError> {
    if !is_name(group) {
        return Err(CommandError::Usage(format!(
            "{group:?} is not a name for a group; use letters, digits, - and _"
        )));
    }
    let path = format!("admin/groups/{group}");
    let call = session
        .client
        .call(method, &path, &[], body, Patience::Short);
    let response = call.await?;
    session.show(&response, |changed: &ChangedGroup| {
        groups::changed(changed, done, session.screen.style)
    })
}

/// Returns true for names that need no percent codes in a path. The server checks the rest.
fn is_name(group: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    !group.is_empty() && group.bytes().all(is_plain)
}

/// The group without the options that are absent.
fn body(args: &GroupArgs) -> Value {
    let class = || Some(args.class_max?.to_possible_value()?.get_name().to_owned());
    let at_end = || Some(args.at_end?.to_possible_value()?.get_name().to_owned());
    let quota = present(json!({
        "gpu_hours": args.gpu_hours,
        "tokens": args.tokens,
        "at_end": at_end(),
    }));
    present(json!({
        "parent": args.parent,
        "weight": args.weight,
        "reserved_permille": args.reserved_permille,
        "class_max": class(),
        "priority_max": args.priority_max,
        "models": args.models,
        "keys": args.keys,
        "claims": args.claims,
        "quota": Some(quota).filter(|quota| *quota != json!({})),
        "limits": args.limits.to_json(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    #[test]
    fn the_body_has_only_the_options_that_are_present() {
        let line = "admin-client groups set lab --weight 2 --keys k3,k4 --tokens 10M --at-end lowest --class-max flex --priority-max 0";
        let cli = Cli::try_parse_from(line.split_whitespace()).expect("a line");
        let Command::Groups(GroupsArgs {
            command: Some(GroupsCommand::Set(args)),
        }) = cli.command
        else {
            panic!("another command");
        };
        assert_eq!(
            body(&args),
            json!({"weight": 2, "keys": ["k3", "k4"], "class_max": "flex", "priority_max": 0, "quota": {"tokens": "10M", "at_end": "lowest"}})
        );
    }

    #[test]
    fn a_name_that_changes_the_path_is_not_sent() {
        for name in ["", "a/b", "a?b", "..", "a b", "%2e"] {
            assert!(!is_name(name), "{name}");
        }
        assert!(is_name("Course_2026-a"));
    }
}
