//! Gates of replicas and the routing table: requests take seats here without the loop.

mod arrivals;
mod batch_seats;
mod changed_gates;
mod earlier_seats;
mod first_tokens;
mod gate;
mod key_seats;
mod lease_tokens;
mod minute;
mod replica_adapters;
mod routing;
pub(crate) mod seat_counts;
mod seat_user;
mod token_meter;
mod unload_orders;
mod waiting;

pub use batch_seats::BatchRoom;
pub(crate) use changed_gates::ChangedGates;
pub use earlier_seats::EarlierSeats;
pub use first_tokens::FirstTokens;
pub use gate::{CutReason, CutSignal, KeepHotOverride, Lease};
pub(crate) use gate::{Gate, GateReport, GateReports, ToLoop};
pub(crate) use key_seats::GateUse;
pub(crate) use minute::Minute;
pub use replica_adapters::{AdapterLoad, AdapterSeat, AdapterTurn, ReplicaAdapters};
pub use routing::Route;
pub(crate) use routing::Routes;
pub use seat_counts::SeatCounts;
pub use seat_user::SeatUser;
pub use token_meter::TokenMeter;
pub(crate) use waiting::{FirstForecast, Giver, Orders, SeatRequest, SeatRequests, SettledOrder};
