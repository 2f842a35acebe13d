//! The part of a key's seats that were granted within the reserved share of its group (F5). Makes no choices.

/// The part of a key's seats that its group's reserved share pays for (F5). Gates count all requests of a class together, so every seat
/// takes the same part of their service.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReservedPart {
    /// The seats granted within the reserved share, in thousandths.
    pub(super) seats_permille: u64,
    /// The part of the expected service.
    pub(super) expected: u64,
}

impl ReservedPart {
    /// The part of this service of `seats` seats.
    pub(super) fn share(&self, service: u64, seats: u32) -> u64 {
        let all = u128::from(seats.max(1)) * 1_000;
        let part = u128::from(service) * u128::from(self.seats_permille) / all;
        u64::try_from(part).unwrap_or(u64::MAX)
    }

    /// The part that is left once `left` of `seats` seats remain, with this expected service.
    pub(super) fn remaining(&self, seats: u32, left: u32, expected: u64) -> ReservedPart {
        let seats_permille =
            self.seats_permille * u64::from(left.min(seats)) / u64::from(seats.max(1));
        let part = ReservedPart {
            seats_permille,
            expected: 0,
        };
        ReservedPart {
            expected: part.share(expected, left),
            ..part
        }
    }
}
