//! The members that a request for a virtual model has tried.

use std::sync::Arc;
use std::time::Duration;

use super::table::{Rule, VirtualModel};

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

    /// Begins the attempt with this member.
    pub fn begin(&mut self, member: usize, has_next: bool) {
        self.member = member;
        self.tried |= bit(member);
        self.has_next = has_next;
    }
}

/// Members beyond the 32 that the configuration allows count as tried together.
fn bit(member: usize) -> u32 {
    1 << member.min(31)
}
