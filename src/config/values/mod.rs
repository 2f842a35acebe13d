//! Types of single values: quantities, addresses, origins, time zones, cron expressions. Each is checked when it is parsed.

pub(crate) mod addresses;
mod batch_hours;
mod bucket_uri;
mod cron;
mod database_url;
mod device_kind;
mod length_or_word;
mod listen;
mod month;
mod structured;
mod token_count;
pub(crate) mod units;
mod web_origin;
mod zone;

pub use addresses::Addresses;
pub use batch_hours::BatchHours;
pub use bucket_uri::{BucketFolder, BucketUri, Scheme};
pub use cron::CronExpression;
pub use database_url::{DatabaseUrl, PostgresUrl};
pub use device_kind::DeviceKind;
pub use length_or_word::{IdleProbe, IdleYields, KeepHot, MaxTurn, MinResident, RenewBefore};
pub use listen::{Listen, SocketMode};
pub use month::Month;
pub use structured::{BasePath, ListenAddress, TimeZone};
pub use token_count::TokenCount;
pub use units::{Length, MemoryPart, ParseValueError, Size};
pub use web_origin::WebOrigin;
pub use zone::LocalZone;
