//! The parts of the rules P3 and P5 that plain least recent use does not have. `pool.policy` enables all or none of them; a
//! comparison can leave out a single part.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Compares victims by the expected cost of reloading them instead of by their last use.
    ExpectedLoss,
    /// Shadows of both eviction rules, and switching to the better one.
    Shadows,
    /// The load that serves the most requests per time goes first, instead of the load that was requested first.
    LoadOrder,
    /// A busy model leaves for a model of equal priority when its turn is over.
    Turns,
    /// An idle model stays for its own next request.
    NextRequest,
    /// Victims continue to serve while the disk is busy with another load.
    LateEviction,
}

impl Part {
    pub const ALL: [Part; 6] = [
        Part::ExpectedLoss,
        Part::Shadows,
        Part::LoadOrder,
        Part::Turns,
        Part::NextRequest,
        Part::LateEviction,
    ];

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Selects which models of equal priority leave, and when (P3, P5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy(u8);

impl Policy {
    /// By the expected cost of reloading, with turns.
    pub const ADAPTIVE: Policy = Policy(0b11_1111);
    /// By least recent use. A busy model never leaves for a model of equal priority, and requests are served in order of arrival.
    /// For comparison.
    pub const LRU: Policy = Policy(0);

    /// Leaves a part out, to measure what it contributes.
    #[must_use]
    pub const fn without(self, part: Part) -> Policy {
        Policy(self.0 & !part.bit())
    }

    pub(crate) const fn has(self, part: Part) -> bool {
        self.0 & part.bit() != 0
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::ADAPTIVE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_without_any_part_is_lru() {
        let mut policy = Policy::ADAPTIVE;
        for part in Part::ALL {
            assert!(policy.has(part) && !Policy::LRU.has(part));
            policy = policy.without(part);
            assert!(!policy.has(part));
        }
        assert_eq!(policy, Policy::LRU);
    }
}
