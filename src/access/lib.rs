//! Who may use the pool, and how much of it: single sign-on and limits of keys. Each knows nothing of the
//! other, and neither knows HTTP.

pub mod limits;
pub mod oidc;
