//! The user of a seat: the key that a request counts for, its class, and the tokens that it is expected to take (F1).

use pool::{KeyId, ServiceClass, Tokens};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeatUser {
    pub key: KeyId,
    pub class: ServiceClass,
    /// Zero for requests whose engine reports no tokens.
    pub expected: Tokens,
    /// A request of a batch, which the account of device time counts apart.
    pub is_batch: bool,
}

impl From<KeyId> for SeatUser {
    fn from(key: KeyId) -> SeatUser {
        SeatUser {
            key,
            ..SeatUser::default()
        }
    }
}
