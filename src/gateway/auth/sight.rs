//! The model names that a caller may see, from its key or groups. Other models appear not to exist, and no message to the caller
//! names them.

use std::sync::Arc;

use wildmatch::WildMatch;

use crate::auth::sign_on::Person;
use crate::caller_group::CallerGroup;
use access::oidc::Identity;
use catalog::Entry;
use controller::CutReason;
use pool::{Blocker, Refusal, StallReason, StopReason};

/// Replaces a name that the reader may not know.
pub const ANOTHER: &str = "another model";
/// Replaces the name of a key that the reader may not know.
pub const ANOTHER_KEY: &str = "another key";

/// Cheap to clone, because every request has one.
#[derive(Clone, Debug, Default)]
pub struct Sight {
    bounds: Option<Arc<Bounds>>,
    /// The caller's group, which may restrict the models of its members.
    group: Option<Arc<CallerGroup>>,
}

#[derive(Debug)]
enum Bounds {
    /// Names, or patterns with `*` and `?`.
    Patterns(Vec<String>),
    /// A person with a single sign-on token.
    Person(Person),
}

impl Sight {
    /// Without patterns, all names are visible.
    pub(crate) fn of_patterns(patterns: Vec<String>) -> Sight {
        let bounds = (!patterns.is_empty()).then_some(Bounds::Patterns(patterns));
        Sight {
            bounds: bounds.map(Arc::new),
            group: None,
        }
    }

    pub(crate) fn of_person(person: Person) -> Sight {
        Sight {
            bounds: Some(Arc::new(Bounds::Person(person))),
            group: None,
        }
    }

    /// The group for which the caller's requests count.
    pub(crate) fn caller_group(&self) -> Option<&Arc<CallerGroup>> {
        self.group.as_ref()
    }

    /// The caller, if it is a person who has signed on.
    pub(crate) fn person(&self) -> Option<&Identity> {
        match self.bounds.as_deref() {
            Some(Bounds::Person(person)) => Some(&person.identity),
            _ => None,
        }
    }

    /// Restricts the models to the group's as well.
    pub(crate) fn within(mut self, group: Option<&Arc<CallerGroup>>) -> Sight {
        self.group = group.cloned();
        self
    }

    /// Returns true if some models may be hidden from the caller.
    pub fn is_bounded(&self) -> bool {
        self.bounds.is_some() || self.group.as_ref().is_some_and(|group| group.is_bounded())
    }

    /// A text that is equal for all callers with the same sight.
    pub fn group(&self) -> String {
        let group = self.group.as_ref().filter(|group| group.is_bounded());
        let group = group.map_or_else(String::new, |group| format!("group {} ", group.name));
        match self.bounds.as_deref() {
            None => group,
            Some(Bounds::Patterns(patterns)) => format!("{group}{patterns:?}"),
            Some(Bounds::Person(person)) => format!("{group}person {:x}", person.identity.key.0),
        }
    }

    /// Returns true if the names of the keys of this group are visible. Callers whose group restricts their models see the keys of
    /// their group and of the groups below it.
    pub fn has_members_of(&self, path: Option<&str>) -> bool {
        let Some(own) = self.group.as_ref().filter(|group| group.is_bounded()) else {
            return true;
        };
        let below = path.and_then(|path| path.strip_prefix(&*own.path));
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }

    /// Returns true if a model of this name would be visible.
    pub fn has(&self, name: &str) -> bool {
        if self.group.as_ref().is_some_and(|group| !group.has(name)) {
            return false;
        }
        match self.bounds.as_deref() {
            None => true,
            Some(Bounds::Patterns(patterns)) => matches_any(patterns, name),
            Some(Bounds::Person(person)) => person.may_use(name),
        }
    }

    /// Returns true if the caller may use what this entry serves under `name`. A model is visible by its name or any alias. An
    /// adapter counts as a separate model: seeing it does not include its base, or the other way round.
    pub fn may_use(&self, entry: &Entry, name: &str) -> bool {
        match entry.adapter(name) {
            Some(adapter) => self.has(adapter),
            None => self.may_use_base(entry),
        }
    }

    /// Like [`Sight::may_use`] for the base model, regardless of the name in the request.
    pub fn may_use_base(&self, entry: &Entry) -> bool {
        let mut names = std::iter::once(&entry.name).chain(&entry.aliases);
        names.any(|name| self.has(name))
    }

    /// Replaces the names of hidden models in a refusal.
    pub fn refusal(&self, mut refusal: Refusal) -> Refusal {
        let obstacles = match &mut refusal {
            Refusal::NoRoom { obstacles, .. }
            | Refusal::TimedOut {
                stall: StallReason::NoRoom { obstacles },
                ..
            } => Some(obstacles),
            _ => None,
        };
        if let Some(obstacles) = obstacles {
            for obstacle in obstacles {
                match &mut obstacle.what {
                    Blocker::Replica { model, .. } | Blocker::Planned { model, .. } => {
                        self.hide(model);
                    }
                    Blocker::Foreign
                    | Blocker::Settling
                    | Blocker::Cordoned { .. }
                    | Blocker::NodeAway(_)
                    | Blocker::OldNode(_)
                    | Blocker::Host => {}
                }
            }
        }
        refusal
    }

    /// Replaces the names of hidden models in the reason for a cut.
    pub fn cut(&self, mut cut: CutReason) -> CutReason {
        if let CutReason::Stopped(
            StopReason::Preempted { by, .. }
            | StopReason::TurnEnded { by, .. }
            | StopReason::Yielded { by, .. }
            | StopReason::BatchYielded { by }
            | StopReason::Forced { by, .. }
            | StopReason::HostFor { by }
            | StopReason::SleeperDropped { by },
        ) = &mut cut
        {
            self.hide(by);
        }
        cut
    }

    fn hide(&self, name: &mut String) {
        if !self.has(name) {
            ANOTHER.clone_into(name);
        }
    }
}

pub(crate) fn matches_any(patterns: &[String], name: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| WildMatch::new(pattern).matches(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group_spending::Spending;
    use catalog::{Reference, Source};
    use config::Config;
    use pool::{Bytes, DeviceId, Obstacle, OrderId, Priority, Protection, ReplicaId};
    use serde_json::json;

    fn sight(patterns: &[&str]) -> Sight {
        Sight::of_patterns(
            patterns
                .iter()
                .map(|pattern| (*pattern).to_owned())
                .collect(),
        )
    }

    #[test]
    fn a_caller_whose_group_restricts_models_sees_the_keys_of_its_group_and_below_only() {
        let section: config::GroupsSection =
            reading::yaml("top: {models: [tiny-*]}\nlab: {parent: top}\nfree: {}").expect("groups");
        let spending = Spending::default();
        let of_group = |name: &str| {
            let group = CallerGroup::new(&section, name, &spending, pool::GroupId(0));
            Sight::default().within(Some(&Arc::new(group)))
        };
        let paths = [
            None,
            Some("top"),
            Some("top/lab"),
            Some("topology"),
            Some("free"),
        ];
        for (sight, seen) in [
            (Sight::default(), [true; 5]),
            (of_group("free"), [true; 5]),
            (of_group("top"), [false, true, true, false, false]),
            (of_group("lab"), [false, false, true, false, false]),
        ] {
            assert_eq!(paths.map(|path| sight.has_members_of(path)), seen);
        }
    }

    fn base() -> Entry {
        let document = json!({"engine_config": {"model_id": "org/base", "type": "VLLMEngine", "model_path": "/m",
            "lora_adapters": [{"name": "org/first", "path": "/a"}, {"name": "org/second", "path": "/b"}]},
            "pool_config": {"aliases": ["base"]}});
        let (config, reference) = (Config::default(), Reference::default());
        let read = Entry::from_document(&document, Source::Registered, &config, &reference);
        read.unwrap().0
    }

    #[test]
    fn an_adapter_is_permitted_only_by_its_own_name_and_a_model_by_any_of_its_names() {
        let entry = base();
        for (patterns, had) in [
            (&[][..], [true, true, true, true]),
            (&["org/base"], [true, true, false, false]),
            (&["base"], [true, true, false, false]),
            (&["org/first"], [false, false, true, false]),
            (&["org/*"], [true, true, true, true]),
            (&["org/s*", "base"], [true, true, false, true]),
            (&["other"], [false; 4]),
        ] {
            let sight = sight(patterns);
            let names = ["org/base", "base", "org/first", "org/second"];
            assert_eq!(
                names.map(|name| sight.may_use(&entry, name)),
                had,
                "{patterns:?}"
            );
        }
    }

    #[test]
    fn hidden_model_names_are_removed_from_refusals_and_cuts() {
        let held = |what: Blocker| Obstacle {
            device: DeviceId(0),
            name: "gpu0".to_owned(),
            bytes: Bytes(1),
            what,
        };
        let replica = |model: &str| Blocker::Replica {
            replica: ReplicaId(1),
            model: model.to_owned(),
            priority: Priority(2),
            why: Protection::AlwaysHot,
        };
        let planned = Blocker::Planned {
            model: "secret".to_owned(),
            priority: Priority(1),
        };
        let refusal = Refusal::NoRoom {
            needs: Bytes(1),
            devices: 1,
            obstacles: vec![
                held(replica("secret")),
                held(replica("mine")),
                held(planned),
            ],
        };
        let shown = sight(&["mine"]).refusal(refusal.clone()).to_string();
        assert!(
            shown.contains("mine") && !shown.contains("secret"),
            "{shown}"
        );
        assert!(shown.contains(ANOTHER), "{shown}");
        assert_eq!(Sight::default().refusal(refusal.clone()), refusal);
        let Refusal::NoRoom { obstacles, .. } = refusal else {
            unreachable!("made above");
        };
        let timed_out = Refusal::TimedOut {
            waited: pool::Span(1),
            retry: pool::Span(1),
            stall: StallReason::NoRoom { obstacles },
        };
        let shown = sight(&["mine"]).refusal(timed_out).to_string();
        assert!(
            shown.contains("mine") && !shown.contains("secret"),
            "{shown}"
        );

        let by = || "secret".to_owned();
        let (priority, own, order) = (Priority(1), Priority(0), OrderId(1));
        let ready_for = pool::Span(1);
        for reason in [
            StopReason::Preempted {
                by: by(),
                priority,
                own,
                lease: None,
            },
            StopReason::TurnEnded {
                by: by(),
                ready_for,
            },
            StopReason::Yielded {
                by: by(),
                idle: ready_for,
                own,
                priority,
            },
            StopReason::BatchYielded { by: by() },
            StopReason::Forced {
                by: by(),
                order,
                lease: None,
            },
            StopReason::HostFor { by: by() },
            StopReason::SleeperDropped { by: by() },
        ] {
            let cut = CutReason::Stopped(reason);
            let shown = format!("{:?}", sight(&["mine"]).cut(cut.clone()));
            assert!(!shown.contains("secret"), "{shown}");
            assert_eq!(sight(&["sec*"]).cut(cut.clone()), cut);
        }
    }
}
