//! The seat of a batch request, which the runner takes before the request is read.

use std::sync::{Arc, Mutex, PoisonError};

use api_types::error::{ErrorKind, Failure};
use controller::Lease;

/// Holds the seat until the request takes it. A request without one may fail before it needs a seat.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchSeat(Arc<Mutex<Option<Lease>>>);

/// The code of a batch request that needs another seat.
pub(crate) const NO_SEAT: &str = "batch_without_seat";

impl BatchSeat {
    pub fn new(lease: Lease) -> BatchSeat {
        BatchSeat(Arc::new(Mutex::new(Some(lease))))
    }

    /// # Errors
    /// The seat has been taken already, for example because the engine has ended. The runner then runs the request again.
    pub fn take(&self, model: &str) -> Result<Lease, Failure> {
        let mut lease = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lease.take().ok_or_else(|| {
            let message = format!("{model}: the seat of the batch request was lost");
            Failure::new(ErrorKind::Unavailable, NO_SEAT, message)
        })
    }
}
