//! The session of a browser.

use serde::Serialize;
use utoipa::ToSchema;

/// The caller and its permissions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SessionView {
    /// Name of the key or person; `anonymous` without a key.
    #[schema(example = "ann")]
    pub name: String,
    /// `admin`, `viewer` or `user`.
    #[schema(example = "admin")]
    pub role: &'static str,
    /// Latest end of the session, or of the key without a session; null for no expiry.
    pub expires_at: Option<String>,
    /// True if only some models or routes are permitted.
    pub restricted: bool,
    /// Credential of the request: `cookie`, `key` (a bearer token) or `nothing`.
    #[schema(example = "cookie")]
    pub by: &'static str,
}

/// Sign-in methods in addition to keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SignInWays {
    /// Host of the single sign-on issuer; null if only keys and tokens are accepted.
    #[schema(example = "login.example.org")]
    pub sign_on: Option<String>,
}
