//! Collects the members of a virtual model that a caller may use, and chooses one.

use std::cell::OnceCell;
use std::sync::Arc;

use super::choice::{Candidate, Readiness, Reason, choose};
use super::outlook::Outlooks;
use super::request_facts::RequestFacts;
use crate::auth::sight::Sight;
use crate::virtual_table::table::{Rule, VirtualModel};
use api_types::error::{ErrorKind, Failure};
use controller::{Handle, Route};

/// The chosen member.
#[derive(Clone, Debug)]
pub struct Selected {
    /// Its place among the members.
    pub member: usize,
    pub route: Arc<Route>,
    pub reason: Reason,
    /// Members that could serve the request in its place.
    pub others: usize,
}

impl Selected {
    /// The name of the model, or of its adapter if the member is one. A member may be an alias.
    pub fn name(&self, model: &VirtualModel) -> Arc<str> {
        let member = &model.members[self.member].name;
        if self.route.entry.adapter(member).is_some() {
            Arc::clone(member)
        } else {
            Arc::clone(&self.route.name)
        }
    }
}

/// The reason why no member was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectionError {
    /// The caller may use none of the members.
    Hidden,
    /// Members that the caller may use, but that are not served.
    Missing(Vec<Arc<str>>),
    /// No rule of `by` matches the request.
    NoRule,
}

/// Chooses a member for a request of a caller with this sight, among the members that have not been tried. Reads the routing table, and a
/// snapshot of the pool if no member is ready. `number` divides requests without a conversation.
///
/// # Errors
/// No member is left.
pub fn select(
    handle: &Handle,
    sight: &Sight,
    model: &VirtualModel,
    (facts, number): (&RequestFacts, u64),
    has_tried: impl Fn(usize) -> bool,
) -> Result<Selected, SelectionError> {
    let mut candidates = Vec::with_capacity(model.members.len());
    let mut routes = Vec::with_capacity(model.members.len());
    let mut missing = Vec::new();
    for (member, known) in model.members.iter().enumerate() {
        if has_tried(member) {
            continue;
        }
        let Some(route) = handle.route(&known.name) else {
            if sight.has(&known.name) {
                missing.push(Arc::clone(&known.name));
            }
            continue;
        };
        if !sight.may_use(&route.entry, &known.name) {
            continue;
        }
        let ready = route.readiness().map(|(has_room, in_flight)| Readiness {
            has_room,
            in_flight,
        });
        candidates.push(Candidate { member, ready });
        routes.push(route);
    }
    let snapshot = OnceCell::new();
    let mut outlooks = None;
    let outlook = |candidate: usize| {
        let outlooks = outlooks.get_or_insert_with(|| {
            let snapshot = snapshot.get_or_init(|| handle.snapshot());
            Outlooks::new(&snapshot.pool)
        });
        let route: &Arc<Route> = &routes[candidate];
        outlooks.outlook(route.model)
    };
    let Some(choice) = choose(model, &candidates, facts, number, outlook) else {
        return Err(match (candidates.is_empty(), missing.is_empty()) {
            (false, _) => SelectionError::NoRule,
            (true, false) => SelectionError::Missing(missing),
            (true, true) => SelectionError::Hidden,
        });
    };
    let others = match &model.rule {
        Rule::Fallback { .. } => candidates.len() - 1,
        Rule::AnyOf | Rule::Split(_) | Rule::By(_) => 0,
    };
    Ok(Selected {
        member: candidates[choice.candidate].member,
        route: routes.swap_remove(choice.candidate),
        reason: choice.reason,
        others,
    })
}

impl SelectionError {
    /// The error for a caller. `None` if the virtual model does not exist for the caller.
    pub fn failure(&self, name: &str) -> Option<Failure> {
        let mut failure = match self {
            SelectionError::Hidden => return None,
            SelectionError::Missing(names) => {
                let message = format!(
                    "{name} has no member that can serve requests: {} is not in the catalogue, or its file is broken; ask an administrator to fix virtual_models.{name}",
                    names.join(", ")
                );
                Failure::new(ErrorKind::Unavailable, "no_member", message)
            }
            SelectionError::NoRule => {
                let message = format!(
                    "no rule of {name} matches this request; name a model, or ask an administrator for a last rule without conditions in virtual_models.{name}.by"
                );
                Failure::new(ErrorKind::Invalid, "no_member", message)
            }
        };
        failure.body.error.param = Some("model".to_owned());
        Some(failure)
    }
}

/// Returns true if the caller may use a member of the virtual model.
pub fn is_visible(handle: &Handle, sight: &Sight, model: &VirtualModel) -> bool {
    let mut members = model.members.iter();
    members.any(|member| {
        let route = handle.route(&member.name);
        route.is_some_and(|route| sight.may_use(&route.entry, &member.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_missing_members_and_the_section_to_change() {
        let missing = SelectionError::Missing(vec!["a".into(), "org/b".into()]);
        let failure = missing.failure("coder").expect("an error");
        assert_eq!(failure.kind, ErrorKind::Unavailable);
        let message = failure.body.error.message;
        assert!(
            message.contains("a, org/b is not in the catalogue"),
            "{message}"
        );
        assert!(message.contains("virtual_models.coder"), "{message}");
        let failure = SelectionError::NoRule.failure("coder").expect("an error");
        assert_eq!(failure.kind, ErrorKind::Invalid);
        assert!(SelectionError::Hidden.failure("coder").is_none());
    }
}
