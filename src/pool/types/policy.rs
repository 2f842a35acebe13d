//! The parts of the rules P3 and P5 that plain least recent use does not have. `pool.policy` takes all or none of them; a
//! comparison can leave out one.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Victims are compared by what loading them again is expected to cost, not by when they were used last.
    ExpectedLoss,
    /// Shadows of both rules for victims, and the change to the better one.
    Shadows,
    /// The load that serves the most requests for its time goes first, not the one that was requested first.
    LoadOrder,
    /// A busy model leaves for an equal when its turn is over.
    Turns,
    /// A turn ends early when those who wait lose more by it than those whom the model would still serve.
    Pressure,
    /// An idle model stays for its own next request.
    NextRequest,
    /// Victims serve on while the disk is busy with another load.
    LateEviction,
}

impl Part {
    pub const ALL: [Part; 7] = [
        Part::ExpectedLoss,
        Part::Shadows,
        Part::LoadOrder,
        Part::Turns,
        Part::Pressure,
        Part::NextRequest,
        Part::LateEviction,
    ];

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Which equals leave, and when (P3, P5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy(u8);

impl Policy {
    /// By what loading them again is expected to cost, with turns.
    pub const ADAPTIVE: Policy = Policy(0b111_1111);
    /// The one that was used least recently; a busy one never leaves for an equal, and requests are served as they came.
    /// For comparison.
    pub const LRU: Policy = Policy(0);

    /// To measure what the part contributes.
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
    fn without_every_part_the_policy_is_least_recent_use() {
        let mut policy = Policy::ADAPTIVE;
        for part in Part::ALL {
            assert!(policy.has(part) && !Policy::LRU.has(part));
            policy = policy.without(part);
            assert!(!policy.has(part));
        }
        assert_eq!(policy, Policy::LRU);
    }
}
