//! The session of a browser, as the API takes and shows it.

use serde::Serialize;
use utoipa::ToSchema;

/// What logging in takes. Has no `Debug`: it holds a key.
#[derive(ToSchema)]
#[schema(example = json!({"key": "mp-…"}))]
pub struct LoginRequest {
    /// A key, `mp-…`, or a token of the single sign-on.
    #[schema(min_length = 1, max_length = 16_384)]
    pub key: String,
}

/// Who asks, and what they may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SessionView {
    /// Of the key or the person; `anonymous` without a key.
    #[schema(example = "ann")]
    pub name: String,
    /// `admin`, `viewer` or `user`.
    #[schema(example = "admin")]
    pub role: &'static str,
    /// When the session ends at the latest, or the key without one; null: never by itself.
    pub expires_at: Option<String>,
    /// Whether only some models or routes are for them.
    pub restricted: bool,
    /// What says who asks: `cookie`, `key` (a bearer) or `nothing`.
    #[schema(example = "cookie")]
    pub by: &'static str,
}

/// How a browser may sign in, beside a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SignInWays {
    /// The host of the issuer of the single sign-on; null: only keys and tokens.
    #[schema(example = "login.example.org")]
    pub sign_on: Option<String>,
}
