//! The members that a request for a virtual model has tried.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::virtual_table::table::{Rule, VirtualModel};
use edge::record::Share;

/// The virtual model of a request, and its attempts.
#[derive(Clone, Debug)]
pub(crate) struct Attempts {
    pub model: Arc<VirtualModel>,
    /// The member of the present attempt.
    pub member: usize,
    /// One bit for each member that has been tried, with the present one.
    pub tried: u32,
    /// Another member may serve the request after this one.
    pub has_next: bool,
    /// The memory of the copy of the request that is kept for the next member.
    pub kept: Option<Share>,
}

impl Attempts {
    /// Returns true if a failure of this attempt may lead to another one.
    pub fn may_fall_back(&self) -> bool {
        self.has_next && self.model.is_fallback()
    }

    /// The longest wait for the present member.
    pub fn wait_max(&self) -> Option<Duration> {
        match &self.model.rule {
            Rule::Fallback { after, .. } if self.has_next => *after,
            _ => None,
        }
    }

    pub fn has_tried(&self, member: usize) -> bool {
        self.tried & bit(member) != 0
    }

    /// Begins the attempt with this member. `has_next`: another member may serve the request after it. `keep` reserves the memory of
    /// the copy for that member; without memory no other member follows.
    pub fn begin(&mut self, member: usize, has_next: bool, keep: impl FnOnce() -> Option<Share>) {
        self.member = member;
        self.tried |= bit(member);
        if has_next && self.kept.is_none() {
            self.kept = keep();
        }
        self.has_next = has_next && self.kept.is_some();
    }
}

/// The attempts of a request. There are some if it names a virtual model.
#[derive(Debug, Default)]
pub(crate) struct RequestAttempts {
    /// Boxed because most requests name a model.
    current: Mutex<Option<Box<Attempts>>>,
    /// The request is kept, and can be sent to another model after a failure.
    may_repeat: AtomicBool,
}

impl RequestAttempts {
    /// Reads or changes the attempts.
    pub fn with<T>(&self, work: impl FnOnce(&mut Option<Box<Attempts>>) -> T) -> T {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut current)
    }

    /// Returns true if the request names a virtual model.
    pub fn is_virtual(&self) -> bool {
        self.with(|attempts| attempts.is_some())
    }

    /// The longest wait for the present member, if another one may follow.
    pub fn wait_max(&self) -> Option<Duration> {
        self.with(|attempts| attempts.as_ref()?.wait_max())
    }

    /// Notes that the request is kept for another model.
    pub fn set_may_repeat(&self) {
        self.may_repeat.store(true, Ordering::Relaxed);
    }

    pub fn may_repeat(&self) -> bool {
        self.may_repeat.load(Ordering::Relaxed)
    }
}

/// The configuration allows fewer members than the mask has bits.
fn bit(member: usize) -> u32 {
    1 << member.min(31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtual_table::table::tests::model;

    #[test]
    fn a_copy_is_kept_once_and_without_its_memory_no_member_follows() {
        let mut attempts = Attempts {
            model: Arc::new(model("fallback: [a, b, c]")),
            member: 0,
            tried: 0,
            has_next: false,
            kept: None,
        };
        attempts.begin(0, true, || None);
        assert!(!attempts.may_fall_back(), "no memory is left");
        attempts.begin(0, true, || Some(Share::default()));
        assert!(attempts.may_fall_back());
        attempts.begin(1, true, || panic!("the copy is kept already"));
        assert!(attempts.may_fall_back() && attempts.has_tried(1));
        attempts.begin(2, false, || panic!("no member follows"));
        assert!(!attempts.may_fall_back());
    }
}
