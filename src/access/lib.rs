//! Access to the pool: single sign-on, and the limits of keys and models. The two are independent of each other and of HTTP.

pub mod limits;
pub mod oidc;
