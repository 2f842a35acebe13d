//! The account of every device second: used by requests, held idle by a model, loading, asleep, foreign, cordoned, free, or not
//! known. The parts of a device sum to its wall time without remainder. Pure: it reads no clock and does no I/O.
//!
//! Two quantities are divided in the same way:
//!
//! - **Device time.** A device with the memory `C` that holds replicas with the claims `c₁…cₙ` and foreign memory `f` gives a
//!   replica `cᵢ / max(C, Σc + f)` of each second, foreign programs `f / max(C, Σc + f)`, and leaves the rest free. A claim is the
//!   larger of the reserved and the measured memory.
//! - **Byte time.** The memory measured for a replica, or its reservation where devices are not measured, times the time.
//!
//! The time of a serving replica is divided into used and idle by the time its gate had a request inside, and the used part
//! between keys by the tokens of their requests times the time of their seats, or by the latter alone where the engine reports no
//! tokens. Idle time is charged to the key that used the replica last, and to the administrator if an
//! administrator keeps it loaded.

mod account;
mod cut;
mod device;
mod energy;
mod parts;
mod tenant;

pub use account::{Account, DeviceState, GateNews, Tenancy};
pub use device::Sight;
pub use energy::EnergyReading;
pub use parts::{PARTS_MAX, Part, Payer, Use};
pub use tenant::Life;
