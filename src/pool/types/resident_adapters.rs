//! Tracks the adapters of a replica and chooses which leaves for another: the least recently used without requests inside. Separate
//! from the pool's own decisions, because adapters only use memory that the replica has already reserved.
//!
//! ```text
//!          request: Load            loaded               request: Load, for another
//!  absent ──────────▶ coming ──────────▶ here (n inside) ──────────────────▶ leaving ──▶ absent
//!                        └─ failed ─▶ absent    └─ doubtful: the request that loaded it left, or its files changed
//! ```
//!
//! A request that gets [`AdapterAccess::Load`] first unloads `leaves`, then loads, and reports the result of each.

use alloc::collections::BTreeMap;
use alloc::string::String;

/// Identifies the version of an adapter's files.
pub type FilesFingerprint = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Coming,
    Here,
    Leaving,
}

#[derive(Clone, Debug)]
struct Resident {
    stage: Stage,
    /// `None` if it is unknown which files it has, or whether the engine has it.
    fingerprint: Option<FilesFingerprint>,
    inside: u32,
    last_use: u64,
    /// Loaded by an earlier controller, whose requests are not counted here.
    is_found: bool,
}

/// The adapters of a replica.
#[derive(Clone, Debug)]
pub struct ResidentAdapters {
    most: usize,
    held: BTreeMap<String, Resident>,
    uses: u64,
}

/// The next step of a request for an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdapterAccess {
    /// The adapter is here, and the request is counted inside.
    Enter,
    /// Load the adapter. `leaves` in its place goes first; it may be the same adapter with other files.
    Load { leaves: Option<String> },
    /// Every place is in use, or another request is loading the adapter. Try again after a change.
    Wait,
}

impl ResidentAdapters {
    pub fn new(most: u32) -> ResidentAdapters {
        ResidentAdapters {
            most: most.max(1) as usize,
            held: BTreeMap::new(),
            uses: 0,
        }
    }

    /// Records an adapter that was found in the engine.
    pub fn found(&mut self, name: String) {
        let resident = Resident {
            stage: Stage::Here,
            fingerprint: None,
            inside: 0,
            last_use: 0,
            is_found: true,
        };
        self.held.entry(name).or_insert(resident);
    }

    /// Returns true if a request for it would enter immediately.
    pub fn has(&self, name: &str) -> bool {
        let held = self.held.get(name);
        held.is_some_and(|adapter| adapter.stage == Stage::Here)
    }

    /// The names of the adapters that are here, with the number of requests inside.
    pub fn here(&self) -> impl Iterator<Item = (&str, u32)> {
        let here = self
            .held
            .iter()
            .filter(|(_, adapter)| adapter.stage == Stage::Here);
        here.map(|(name, adapter)| (name.as_str(), adapter.inside))
    }

    /// Decides the next step of a request for the adapter with these files. `has_guests` is true while the engine serves requests
    /// of an earlier controller, for unknown adapters.
    pub fn request(
        &mut self,
        name: &str,
        fingerprint: FilesFingerprint,
        has_guests: bool,
    ) -> AdapterAccess {
        self.uses += 1;
        let now = self.uses;
        if let Some(resident) = self.held.get_mut(name) {
            let is_in_use = resident.inside > 0 || (resident.is_found && has_guests);
            let is_same = resident.fingerprint == Some(fingerprint);
            return match resident.stage {
                Stage::Coming | Stage::Leaving => AdapterAccess::Wait,
                Stage::Here if is_same || (resident.fingerprint.is_none() && is_in_use) => {
                    resident.inside += 1;
                    resident.last_use = now;
                    AdapterAccess::Enter
                }
                Stage::Here if is_in_use => AdapterAccess::Wait,
                Stage::Here => {
                    resident.stage = Stage::Coming;
                    AdapterAccess::Load {
                        leaves: Some(name.into()),
                    }
                }
            };
        }
        let leaves = if self.held.len() < self.most {
            None
        } else {
            match self.least_recent(has_guests) {
                Some(victim) => Some(victim),
                None => return AdapterAccess::Wait,
            }
        };
        if let Some(victim) = leaves
            .as_ref()
            .and_then(|adapter| self.held.get_mut(adapter))
        {
            victim.stage = Stage::Leaving;
        }
        let resident = Resident {
            stage: Stage::Coming,
            fingerprint: Some(fingerprint),
            inside: 0,
            last_use: now,
            is_found: false,
        };
        self.held.insert(name.into(), resident);
        AdapterAccess::Load { leaves }
    }

    fn least_recent(&self, has_guests: bool) -> Option<String> {
        let may_leave = |adapter: &Resident| {
            adapter.stage == Stage::Here && adapter.inside == 0 && !(adapter.is_found && has_guests)
        };
        let held = self.held.iter().filter(|(_, adapter)| may_leave(adapter));
        let first = held.min_by_key(|(name, adapter)| (adapter.last_use, *name));
        first.map(|(name, _)| name.clone())
    }

    /// The engine has unloaded it.
    pub fn unloaded(&mut self, victim: &str) {
        if let Some(resident) = self.held.get_mut(victim) {
            match resident.stage {
                Stage::Leaving => {
                    self.held.remove(victim);
                }
                Stage::Coming | Stage::Here => {}
            }
        }
    }

    /// The engine has loaded it with these files. The request that loaded it is counted inside.
    pub fn loaded(&mut self, name: &str, fingerprint: FilesFingerprint) {
        self.uses += 1;
        if let Some(resident) = self.held.get_mut(name) {
            *resident = Resident {
                stage: Stage::Here,
                fingerprint: Some(fingerprint),
                inside: 1,
                last_use: self.uses,
                is_found: false,
            };
        }
    }

    /// The engine has refused it and does not have it.
    pub fn refused(&mut self, name: &str) {
        let is_coming = |adapter: &Resident| adapter.stage == Stage::Coming;
        if self.held.get(name).is_some_and(is_coming) {
            self.held.remove(name);
        }
    }

    /// It is unknown whether the engine has it: the request that loaded or unloaded it left before the engine responded, or the
    /// engine kept it. It is unloaded before it is used, or when its place is needed.
    pub fn doubt(&mut self, name: &str) {
        self.uses += 1;
        let now = self.uses;
        if let Some(resident) = self.held.get_mut(name) {
            resident.stage = Stage::Here;
            resident.fingerprint = None;
            resident.last_use = now;
        }
    }

    /// A request that was inside has ended.
    pub fn leave(&mut self, name: &str) {
        if let Some(resident) = self.held.get_mut(name) {
            resident.inside = resident.inside.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::format;
    use alloc::vec::Vec;

    fn enter(resident_adapters: &mut ResidentAdapters, name: &str) {
        match resident_adapters.request(name, 1, false) {
            AdapterAccess::Enter => {}
            AdapterAccess::Load { leaves } => {
                if let Some(victim) = leaves {
                    resident_adapters.unloaded(&victim);
                }
                resident_adapters.loaded(name, 1);
            }
            AdapterAccess::Wait => panic!("{name} waits"),
        }
    }

    fn use_once(resident_adapters: &mut ResidentAdapters, name: &str) {
        enter(resident_adapters, name);
        resident_adapters.leave(name);
    }

    #[test]
    fn the_least_recently_used_adapter_is_unloaded_and_never_one_in_use() {
        let mut resident_adapters = ResidentAdapters::new(2);
        use_once(&mut resident_adapters, "a");
        use_once(&mut resident_adapters, "b");
        use_once(&mut resident_adapters, "a");
        let leaves = Some("b".into());
        assert_eq!(
            resident_adapters.request("c", 1, false),
            AdapterAccess::Load { leaves }
        );
        resident_adapters.unloaded("b");
        resident_adapters.loaded("c", 1);
        enter(&mut resident_adapters, "a");
        assert_eq!(
            resident_adapters.request("d", 1, false),
            AdapterAccess::Wait,
            "both are in use"
        );
        resident_adapters.leave("c");
        let leaves = Some("c".into());
        assert_eq!(
            resident_adapters.request("d", 1, false),
            AdapterAccess::Load { leaves }
        );
    }

    #[test]
    fn changed_adapter_files_are_loaded_once_the_old_ones_are_unused() {
        let mut resident_adapters = ResidentAdapters::new(2);
        enter(&mut resident_adapters, "a");
        assert_eq!(
            resident_adapters.request("a", 2, false),
            AdapterAccess::Wait
        );
        resident_adapters.leave("a");
        let leaves = Some("a".into());
        assert_eq!(
            resident_adapters.request("a", 2, false),
            AdapterAccess::Load { leaves }
        );
        assert_eq!(
            resident_adapters.request("a", 2, false),
            AdapterAccess::Wait,
            "it is loaded once"
        );
        resident_adapters.unloaded("a");
        resident_adapters.loaded("a", 2);
        assert_eq!(
            resident_adapters.request("a", 2, false),
            AdapterAccess::Enter
        );
    }

    #[test]
    fn an_adapter_loaded_by_an_earlier_controller_stays_while_in_use() {
        let mut resident_adapters = ResidentAdapters::new(1);
        resident_adapters.found("a".into());
        assert_eq!(resident_adapters.request("b", 1, true), AdapterAccess::Wait);
        assert_eq!(
            resident_adapters.request("a", 1, true),
            AdapterAccess::Enter
        );
        resident_adapters.leave("a");
        let leaves = Some("a".into());
        assert_eq!(
            resident_adapters.request("b", 1, false),
            AdapterAccess::Load { leaves }
        );
    }

    /// Imitates an engine: it has a limited number of places and never unloads an adapter in use.
    #[derive(Default)]
    struct Engine {
        loaded: BTreeSet<String>,
        using: BTreeMap<String, u32>,
    }

    #[test]
    fn random_requests_violate_no_adapter_rule() {
        for seed in 0..200_u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut below = |bound: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % bound
            };
            let most = 1 + below(4) as usize;
            let mut resident_adapters = ResidentAdapters::new(most as u32);
            let mut engine = Engine::default();
            let mut inside: Vec<String> = Vec::new();
            // Loads in progress: the name, the adapter that leaves, and whether it has left.
            let mut loads: Vec<(String, Option<String>, bool)> = Vec::new();
            let mut entered = 0;
            for _ in 0..400 {
                match below(4) {
                    0 | 1 => {
                        let name = format!("adapter-{}", below(7));
                        match resident_adapters.request(&name, 1 + below(20) / 19, false) {
                            AdapterAccess::Enter => {
                                assert!(engine.loaded.contains(&name), "seed {seed}");
                                *engine.using.entry(name.clone()).or_default() += 1;
                                inside.push(name);
                                entered += 1;
                            }
                            AdapterAccess::Load { leaves } => {
                                assert!(loads.iter().all(|(other, ..)| *other != name));
                                loads.push((name, leaves, false));
                            }
                            AdapterAccess::Wait => {}
                        }
                    }
                    2 if !inside.is_empty() => {
                        let name = inside.swap_remove(below(inside.len() as u64) as usize);
                        *engine.using.get_mut(&name).expect("inside") -= 1;
                        resident_adapters.leave(&name);
                    }
                    _ if !loads.is_empty() => {
                        let nth = below(loads.len() as u64) as usize;
                        let (name, leaves, has_left) = loads[nth].clone();
                        match leaves.filter(|_| !has_left) {
                            Some(victim) => {
                                let users = engine.using.get(&victim).copied();
                                assert_eq!(
                                    users.unwrap_or(0),
                                    0,
                                    "seed {seed}: {victim} is in use"
                                );
                                engine.loaded.remove(&victim);
                                resident_adapters.unloaded(&victim);
                                loads[nth].2 = true;
                            }
                            None => {
                                loads.swap_remove(nth);
                                match below(5) {
                                    0 => resident_adapters.refused(&name),
                                    1 => {
                                        engine.loaded.insert(name.clone());
                                        resident_adapters.doubt(&name);
                                    }
                                    _ => {
                                        engine.loaded.insert(name.clone());
                                        resident_adapters.loaded(&name, 1);
                                        *engine.using.entry(name.clone()).or_default() += 1;
                                        inside.push(name);
                                    }
                                }
                            }
                        }
                    }
                    _ => {}
                }
                assert!(engine.loaded.len() <= most, "seed {seed}: more than {most}");
            }
            assert!(entered > 0, "seed {seed}: no request ever found an adapter");
        }
    }
}
